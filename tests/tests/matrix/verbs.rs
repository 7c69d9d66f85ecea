//! Each verb of an otherwise idle manager, while connections are cut, or when another server has taken over its address.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use lock_runtime::{LockError, LockManager};
use tests::patience::eventually;
use tests::proxy::Proxy;
use tests::server::Server;
use tokio::time::sleep;

use crate::LONG;

const KEPT: Duration = Duration::from_mins(1);
/// How long each verb may take on a busy machine.
const COMMAND: Duration = Duration::from_secs(5);

/// The name of a verb, and the verb as a future.
type Verb = (&'static str, BoxFuture<'static, Result<(), LockError>>);

/// Every verb, each with its own manager.
async fn verbs(url: &str) -> Vec<Verb> {
    let manager = async || LockManager::builder().url(url).command_timeout(COMMAND).connect().await.unwrap();
    let held = async |key: &str| {
        let manager = manager().await;
        let guard = manager.lock("p", key).expire(KEPT).acquire().await.unwrap();
        eventually("the lease is confirmed", LONG, || guard.remaining() > KEPT / 2).await;
        (manager, guard)
    };
    let mut verbs: Vec<Verb> = Vec::new();
    let (kept, guard) = held("extend").await;
    verbs.push(("extend", async move { guard.extend(KEPT * 2).await.map(|()| drop(kept)) }.boxed()));
    let (kept, guard) = held("release").await;
    verbs.push(("release", async move { guard.release().await.map(|()| drop(kept)) }.boxed()));
    let (kept, guard) = held("into_ticket").await;
    verbs.push(("into_ticket", async move { guard.into_ticket(KEPT).await.map(|_| drop(kept)) }.boxed()));
    let (owner, guard) = held("release_ticket").await;
    let ticket = guard.into_ticket(KEPT).await.unwrap();
    verbs.push(("release_ticket", async move { owner.release_ticket(ticket).await }.boxed()));
    let (owner, guard) = held("adopt").await;
    let ticket = guard.into_ticket(KEPT).await.unwrap();
    verbs.push(("adopt", async move { owner.adopt(ticket).await?.release().await }.boxed()));
    let (owner, guard) = held("force_release").await;
    verbs.push((
        "force_release",
        async move { owner.force_release("p", "force_release").await.map(|_| drop(guard)) }.boxed(),
    ));
    for (name, fenced) in [("try_acquire", false), ("try_acquire fenced", true)] {
        let manager = manager().await;
        manager.lock("warm", "up").fenced(fenced).acquire().await.unwrap().release().await.unwrap();
        let attempt = async move {
            let held = manager.lock("p", name).fenced(fenced).try_acquire().await?;
            held.expect("it is free").release().await
        };
        verbs.push((name, attempt.boxed()));
    }
    let reader = manager().await;
    verbs.push(("inspect", async move { reader.inspect("p", "free").await.map(drop) }.boxed()));
    verbs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_11_every_verb_outlives_connections_that_are_killed_again_and_again() {
    let server = Server::start();
    let proxy = Arc::new(Proxy::before(&server));
    for (name, verb) in verbs(&proxy.url()).await {
        let cutting = Arc::clone(&proxy);
        cutting.cut();
        let cuts = tokio::task::spawn_blocking(move || {
            for _ in 0..20 {
                std::thread::sleep(Duration::from_millis(5));
                cutting.cut();
            }
        });
        let outcome = verb.await;
        assert!(outcome.is_ok(), "{name}: {outcome:?}");
        cuts.await.unwrap();
    }
}

/// No connection is cut: the refusal is the only sign of the new master.
#[tokio::test]
async fn row_21_every_verb_goes_on_with_the_next_master_behind_the_same_address() {
    let old = Server::with(&["--repl-diskless-sync-delay", "0"]);
    let proxy = Proxy::before(&old);
    let port = |server: &Server| server.address().replace("127.0.0.1:", "");
    let new = Server::with(&["--replicaof", "127.0.0.1", &port(&old), "--repl-diskless-sync-delay", "0"]);
    let verbs = verbs(&proxy.url()).await;
    // The library does not leave a connection younger than a second because of a refusal.
    sleep(Duration::from_millis(1100)).await;
    let names = |server: &Server| server.keys().into_keys().collect::<Vec<_>>();
    eventually("the replica has all locks", LONG, || names(&old) == names(&new)).await;
    new.tell("REPLICAOF NO ONE");
    proxy.lead_to(&new);
    old.tell(&format!("REPLICAOF 127.0.0.1 {}", port(&new)));
    for (name, verb) in verbs {
        let outcome = verb.await;
        assert!(outcome.is_ok(), "{name}: {outcome:?}");
    }
    assert!(new.owner("p:into_ticket").is_some());
    assert_eq!((new.owner("p:release"), new.owner("p:release_ticket"), new.owner("p:adopt")), (None, None, None));
}
