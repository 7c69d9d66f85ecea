//! Concurrent acquires of many tasks, whose claims are sent in one write, with a reply for each.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use lock_runtime::{LockError, LockGuard, LockManager};
use tests::cluster::Cluster;
use tests::patience::eventually;
use tests::proxy::{Fault, Proxy};
use tests::server::Server;

use crate::{LONG, TIMEOUT, manager, warm_up};

const COUNT: usize = 50;
/// A command in the middle of the write.
const MIDDLE: usize = 25;

async fn acquire_all(manager: &LockManager, timeout: Duration) -> Vec<Result<LockGuard, LockError>> {
    join_all((0..COUNT).map(|key| manager.lock("p", &key).timeout(timeout).acquire())).await
}

async fn release_all(guards: Vec<LockGuard>) {
    for outcome in join_all(guards.into_iter().map(LockGuard::release)).await {
        outcome.unwrap();
    }
}

fn owners(server: &Server) -> BTreeSet<String> {
    (0..COUNT).filter_map(|key| server.owner(&format!("p:{key}"))).collect()
}

async fn wait_until_free(server: &Server) {
    let of_locks = |server: &Server| server.keys().into_keys().filter(|key| key.contains("p:")).count();
    eventually("all are free", Duration::from_secs(3), || of_locks(server) == 0).await;
}

/// Lets this many commands pass before the one that the fault hits.
fn let_pass(proxy: &Proxy, count: usize) {
    for _ in 0..count {
        proxy.plan("SET", Fault::DelayReply(Duration::ZERO));
    }
}

#[tokio::test]
async fn row_64_one_refused_claim_does_not_affect_the_others() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    warm_up(&[&manager]).await;
    server.tell("RPUSH p:30 of-another-type");
    server.tell("SET p:31 stranger PX 60000");
    let mut guards = Vec::new();
    for (key, outcome) in acquire_all(&manager, TIMEOUT).await.into_iter().enumerate() {
        match (key, outcome) {
            (30, Err(error)) => assert!(error.to_string().contains("WRONGTYPE"), "{error}"),
            (31, Err(error)) => assert!(error.is_timeout(), "{error}"),
            (_, outcome) => guards.push(outcome.unwrap()),
        }
    }
    assert_eq!(guards.len(), COUNT - 2);
    assert_eq!(server.owner("p:31").as_deref(), Some("stranger"));
    assert_eq!(server.ask::<u32>("LLEN p:30"), 1);
    release_all(guards).await;
    let left: Vec<_> = server.keys().into_keys().filter(|key| key.starts_with("p:")).collect();
    assert_eq!(left, ["p:30", "p:31"]);
}

#[tokio::test]
async fn row_64_claims_whose_replies_are_lost_are_granted_once() {
    for fault in [Fault::MuteFromReply, Fault::CutAfterForward, Fault::CutBeforeForward] {
        let server = Server::start();
        let proxy = Proxy::before(&server);
        let manager = manager(&proxy.url()).await;
        warm_up(&[&manager]).await;
        let_pass(&proxy, MIDDLE);
        proxy.plan("SET", fault);
        let guards: Vec<_> = acquire_all(&manager, LONG).await.into_iter().map(Result::unwrap).collect();
        assert!(proxy.is_through());
        assert!(guards.iter().all(LockGuard::is_valid));
        assert_eq!(owners(&server).len(), COUNT);
        drop(guards);
        wait_until_free(&server).await;
    }
}

#[tokio::test]
async fn row_64_claims_are_half_executed_when_the_server_dies_and_all_are_granted_when_it_is_back() {
    let mut server = Server::start();
    let proxy = Proxy::before(&server);
    let manager = manager(&proxy.url()).await;
    warm_up(&[&manager]).await;
    let_pass(&proxy, MIDDLE);
    proxy.plan("SET", Fault::Hold);
    let acquiring = tokio::spawn(async move { acquire_all(&manager, LONG).await });
    // The keeper may have asked for more of the locks over its own connection.
    eventually("half of them are executed", LONG, || proxy.holding() > 0 && owners(&server).len() >= MIDDLE).await;
    server.kill();
    proxy.let_go();
    server.restart();
    let guards: Vec<_> = acquiring.await.unwrap().into_iter().map(Result::unwrap).collect();
    // The locks granted before the server died are reported as lost, or were granted again.
    eventually("each has its lock, or knows that it is lost", LONG, || {
        guards.iter().enumerate().all(|(key, guard)| !guard.is_valid() || server.owner(&format!("p:{key}")).is_some())
    })
    .await;
    drop(guards);
    wait_until_free(&server).await;
}

#[tokio::test]
async fn row_64_claims_of_acquires_that_timed_out_leave_nothing() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    warm_up(&[&manager]).await;
    server.freeze();
    for outcome in acquire_all(&manager, TIMEOUT).await {
        assert!(matches!(outcome, Err(LockError::Backend { .. })), "{outcome:?}");
    }
    server.thaw();
    wait_until_free(&server).await;
    let guards = acquire_all(&manager, LONG).await.into_iter().map(Result::unwrap).collect();
    release_all(guards).await;
    wait_until_free(&server).await;
}

/// A blocked thread delays the commands of its own tasks, and must not delay other runtimes.
#[tokio::test]
async fn claims_of_a_runtime_that_stands_still_keep_no_other_runtime_waiting() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    warm_up(&[&manager]).await;
    server.freeze();
    let other = manager.clone();
    let (parked, asking) = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut asking: Vec<_> = (0..COUNT)
            .map(|key| other.lock("parked", &key).timeout(LONG))
            .map(|request| Box::pin(async move { request.acquire().await }))
            .collect();
        runtime.block_on(async {
            for asking in &mut asking {
                assert!(futures_util::poll!(asking).is_pending());
            }
        });
        (runtime, asking)
    })
    .await
    .unwrap();
    server.thaw();
    let guards = acquire_all(&manager, TIMEOUT).await.into_iter().map(Result::unwrap).collect();
    release_all(guards).await;
    drop(asking);
    wait_until_free(&server).await;
    eventually("none of their locks is left", Duration::from_secs(3), || {
        !server.keys().keys().any(|key| key.contains("parked"))
    })
    .await;
    parked.shutdown_background();
}

#[tokio::test]
async fn in_a_cluster_each_master_gets_its_claims_and_releases_together() {
    let cluster = Cluster::start();
    let manager = LockManager::connect(&cluster.url()).await.unwrap();
    for _ in 0..3 {
        let guards: Vec<_> = acquire_all(&manager, LONG).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(guards.len(), COUNT);
        release_all(guards).await;
    }
    let left = acquire_all(&manager, Duration::ZERO).await;
    assert!(left.iter().all(Result::is_ok), "{left:?}");
}
