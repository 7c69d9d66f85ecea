//! Many tasks keep trying locks, each on its own key, while the server is away.

use std::time::Duration;

use tests::outage::{Kind, Load, Report, outage};
use tests::patience::NOISE;

use crate::LATE;

const LOAD: Load = Load {
    tasks: 50,
    timeout: Duration::from_millis(100),
    outage: Duration::from_secs(3),
    step: Duration::from_secs(1),
    after: Duration::from_secs(2),
};

async fn costs_little(kind: Kind) -> Report {
    let report = outage(kind, &LOAD, |_| ()).await;
    for row in &report.rows[1..] {
        assert!(row.failed() > 0, "{row}");
        assert_eq!(row.errors.keys().collect::<Vec<_>>(), [&"unreachable"], "{row}");
        assert!(row.overshoot(100) < LATE + NOISE + row.machine, "{row}");
    }
    // A command timeout for the connection attempt, and a second for the pause before the next attempt.
    assert!(report.first_grant < Duration::from_millis(1500) + NOISE, "{:?}", report.first_grant);
    assert_eq!(report.left, 0);
    report
}

/// The server was restarted, so its counts are from after the outage. Each lock takes one `SET`, and one `GET` for its release. Commands
/// that were under way when the server died cost another `GET` each: per task, the release of one lock, which continues in the
/// background, and the claim of the next.
fn leaves_nothing_to_withdraw(report: &Report) {
    let (taken, looked_at) = (report.calls.of("set"), report.calls.of("get"));
    assert!(looked_at <= taken + 2 * LOAD.tasks, "{} for {taken} locks", report.calls);
}

#[tokio::test]
async fn row_60_tries_while_the_server_is_down_leave_nothing_to_withdraw_and_all_goes_on_at_once() {
    leaves_nothing_to_withdraw(&costs_little(Kind::Killed).await);
}

#[tokio::test]
async fn row_60_tries_while_every_connection_is_closed_leave_nothing_to_withdraw_and_all_goes_on_at_once() {
    leaves_nothing_to_withdraw(&costs_little(Kind::Closed).await);
}

#[tokio::test]
async fn row_60_tries_while_the_server_hangs_cost_little_and_all_goes_on_at_once() {
    costs_little(Kind::Stopped).await;
}

#[tokio::test]
async fn row_60_tries_in_a_black_hole_cost_little_and_all_goes_on_soon() {
    costs_little(Kind::Silent).await;
}
