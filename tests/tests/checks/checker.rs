//! The checker can fail: locks with the mistakes that are made most are caught, under the faults that the soak sends.

mod broken;
mod scene;

use std::time::{Duration, Instant};

use broken::{CountsFromTheReply, DeletesWithoutToken, GetsThenDeletes, Good, SetsWithoutExpire};
use history::Lock;
use scene::Scene;
use tests::child;
use tests::soak::round::Setting;
use tests::soak::worker::Role;
use tests::soak::{Plan, Report, round, serve};

/// Not a test of its own: what the workers of this file do.
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

/// The usual faults, for rounds with one seed after the other, until a check whose name starts with one of `checks` finds something.
/// Nearly always the first round does.
fn caught<L: Lock>(lock: &str, checks: &[&str]) {
    let start = Instant::now();
    let mut total = Report::default();
    for seed in 1.. {
        let setting = Setting { lock, test: Some("checker::worker"), is_over: &|| false, keep: None };
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
fn the_checker_lets_a_lock_without_these_mistakes_pass() {
    let setting = Setting { lock: "good", test: Some("checker::worker"), is_over: &|| false, keep: None };
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

// The other two mistakes show when one command is late by more than the rest of a lease, and others want the lock just then. A round may
// go by without that, so each has its scene.

#[tokio::test]
async fn the_checker_catches_a_look_before_the_deletion() {
    let found = Scene::start().release_is_late::<GetsThenDeletes>("DEL").await;
    assert_eq!(found.len(), 1, "{found:?}");
    let found = Scene::start().release_is_late::<Good>("EVAL").await;
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test]
async fn the_checker_catches_a_deadline_counted_from_the_reply() {
    // A machine that is busy for as long as the reply is late hides it.
    for _ in 0..20 {
        let found = Scene::start().grant_is_late::<Good>().await;
        assert!(found.is_empty(), "{found:?}");
        if !Scene::start().grant_is_late::<CountsFromTheReply>().await.is_empty() {
            return;
        }
    }
    panic!("not caught in 20 scenes");
}
