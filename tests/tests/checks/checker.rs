//! The checker can fail: locks with the mistakes that are made most are caught, under the same faults that the soak
//! sends, and within seconds.

mod broken;

use std::time::{Duration, Instant};

use broken::{CountsFromTheReply, DeletesWithoutToken, GetsThenDeletes, Good, SetsWithoutExpire};
use history::Lock;
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
        "counts from the reply" => serve::<CountsFromTheReply>(&role),
        "gets, then deletes" => serve::<GetsThenDeletes>(&role),
        other => panic!("what is {other}?"),
    }
}

/// Most are caught in the first round, of seven seconds; the rarest, on a busy machine, in the third or fourth.
const BUDGET: Duration = Duration::from_secs(40);

/// Rounds with one seed after the other, until a check whose name starts with one of `checks` finds something.
fn caught<L: Lock>(lock: &str, checks: &[&str]) -> Report {
    let start = Instant::now();
    let mut total = Report::default();
    for seed in 1.. {
        let setting = Setting { lock, test: Some("checker::worker"), is_over: &|| false, keep: None };
        total.add(round::<L>(&Plan::short(seed), setting));
        let is_caught = total.violations.iter().any(|one| checks.iter().any(|check| one.check.starts_with(check)));
        if is_caught {
            println!("after {seed} rounds, {:?}:\n{total}", start.elapsed());
            return total;
        }
        assert!(start.elapsed() < BUDGET, "not caught by {checks:?} in {seed} rounds: {total}");
    }
    total
}

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

#[test]
fn the_checker_catches_a_deadline_counted_from_the_reply() {
    caught::<CountsFromTheReply>("counts from the reply", &["C1", "C7"]);
}

#[test]
fn the_checker_catches_a_look_before_the_deletion() {
    caught::<GetsThenDeletes>("gets, then deletes", &["C1", "C7"]);
}
