//! A process that dies right after its grant: `at_least` keeps others out anyway.

use std::time::Duration;

use lock_runtime::LockManager;
use tests::child::{self, Child};
use tests::server::Server;
use tokio::time::Instant;

const KEPT: Duration = Duration::from_secs(3);
/// How long a reply may take: the lease is longer by this time.
const ANSWER: Duration = Duration::from_millis(500);

/// The child acquires the lock with a lease far shorter than `at_least`, and does nothing more.
#[tokio::test]
async fn child_process() {
    let Some(url) = child::role() else { return };
    let locks = LockManager::connect(&url).await.unwrap();
    let request = locks.lock("report", "daily").expire(Duration::from_millis(300)).at_least(KEPT);
    let body = async {
        child::say("runs");
        std::future::pending::<()>().await;
    };
    request.run(body).await.unwrap();
}

/// The body of this child ends at once, and then it does nothing more. Its lease is 30 s long.
#[tokio::test]
async fn child_process_that_rests() {
    let Some(url) = child::role() else { return };
    let locks = LockManager::connect(&url).await.unwrap();
    locks.lock("report", "daily").at_least(KEPT).run(async {}).await.unwrap();
    child::say("rests");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_process_that_dies_while_the_lock_rests_costs_the_rest() {
    let server = Server::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let mut child = Child::of("at_least::child_process_that_rests", &server.url());
    child.wait_for("rests");
    let start = Instant::now();
    while !locks.inspect("report", "daily").await.unwrap().unwrap().rests {
        assert!(start.elapsed() < ANSWER, "the lock must rest");
    }
    child.kill();
    drop(locks.lock("report", "daily").timeout(KEPT * 3).acquire().await.unwrap());
    let waited = start.elapsed();
    assert!(waited + ANSWER >= KEPT && waited < KEPT + Duration::from_secs(1), "{waited:?}");
}

#[tokio::test]
async fn a_process_that_dies_in_the_first_step_of_its_body_keeps_others_out() {
    let server = Server::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let mut child = Child::of("at_least::child_process", &server.url());
    child.wait_for("runs");
    let start = Instant::now();
    child.kill();
    assert!(locks.lock("report", "daily").try_acquire().await.unwrap().is_none());
    drop(locks.lock("report", "daily").timeout(KEPT * 3).acquire().await.unwrap());
    let waited = start.elapsed();
    // Promise 4: a crashed holder delays others by its lease and a second.
    assert!(
        waited + Duration::from_millis(100) >= KEPT && waited < KEPT + ANSWER + Duration::from_secs(1),
        "{waited:?}"
    );
}
