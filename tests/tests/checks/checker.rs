//! The checker catches locks with the most common mistakes, under the soak's faults.

mod broken;
mod operations;
mod scene;

use std::time::{Duration, Instant};

use broken::{CountsFromTheReply, DeletesWithoutToken, GetsThenDeletes, Good, SetsWithoutExpire};
use history::Lock;
use scene::Scene;
use tests::child;
use tests::soak::round::Setting;
use tests::soak::worker::Role;
use tests::soak::{Plan, Report, round, serve};

/// No test: the workers of this file run it in processes of their own.
#[test]
fn worker() {
    let Some(role) = child::role() else { return };
    let role = Role::read(&role);
    match role.lock.as_str() {
        "good" => serve::<Good>(&role),
        "sets without expire" => serve::<SetsWithoutExpire>(&role),
        "deletes without token" => serve::<DeletesWithoutToken>(&role),
        other => panic!("what is {other}?"),
    }
}

/// Plays rounds with the usual faults, each with another seed, until a check whose name starts with one of `checks` finds something.
/// Nearly always the first round is enough.
fn caught<L: Lock>(lock: &str, checks: &[&str]) {
    let start = Instant::now();
    let mut total = Report::default();
    for seed in 1.. {
        let setting = Setting::new(lock, Some("checker::worker"), &|| false);
        total.add(round::<L>(&Plan::short(seed), setting));
        let is_caught = total.violations.iter().any(|one| checks.iter().any(|check| one.check.starts_with(check)));
        if is_caught {
            println!("after {seed} rounds, {:?}:\n{total}", start.elapsed());
            return;
        }
        assert!(start.elapsed() < BUDGET, "not caught by {checks:?} in {seed} rounds: {total}");
    }
}

const BUDGET: Duration = Duration::from_secs(40);

#[test]
fn the_checker_accepts_a_lock_without_these_mistakes() {
    let setting = Setting::new("good", Some("checker::worker"), &|| false);
    let report = round::<Good>(&Plan::short(1), setting);
    assert!(report.is_well(), "{report}");
}

#[test]
fn the_checker_catches_a_lock_without_an_end() {
    caught::<SetsWithoutExpire>("sets without expire", &["C4", "C6"]);
}

#[test]
fn the_checker_catches_a_deletion_without_token() {
    caught::<DeletesWithoutToken>("deletes without token", &["C1", "C7"]);
}

// The other two mistakes only show when one command is late by more than the rest of a lease while others want the lock. That may not
// happen in a round, so each has a scripted scene.

#[tokio::test]
async fn the_checker_catches_a_look_before_the_deletion() {
    let found = Scene::start().release_is_late::<GetsThenDeletes>("DEL").await;
    assert_eq!(found.len(), 1, "{found:?}");
    let found = Scene::start().release_is_late::<Good>("EVAL").await;
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test]
async fn the_checker_catches_a_deadline_counted_from_the_reply() {
    // If the machine is busy for as long as the reply is late, the mistake does not show. Then play the scene again.
    for _ in 0..20 {
        let found = Scene::start().grant_is_late::<Good>().await;
        assert!(found.is_empty(), "{found:?}");
        if !Scene::start().grant_is_late::<CountsFromTheReply>().await.is_empty() {
            return;
        }
    }
    panic!("not caught in 20 scenes");
}
