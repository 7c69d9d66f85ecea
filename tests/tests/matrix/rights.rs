//! The user that the locks connect as may not do everything.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_runtime::{LockError, LockGuard, LockManager};
use tests::patience::NOISE;
use tests::server::Server;
use tokio::time::sleep;

use crate::{LATE, LONG, TIMEOUT, is_confirmed, is_had_soon, is_lost, is_queued, manager};

/// The rights that the docs name.
const LEAST: &str = "~* &cache_lock:* -@all +set +get +del +pexpire +pttl +exists +zadd +zpopmin +zrange \
                     +zrem +zscore +time +publish +subscribe +unsubscribe +eval +evalsha +ping +hello";

#[tokio::test]
async fn row_44_a_user_without_the_right_to_scripts_is_told_so() {
    let server = Server::start();
    server.tell("ACL SETUSER poor on >canary-7f3a ~* &* -@all +set +get +ping +hello +info +client +subscribe");
    let url = server.url().replace("redis://", "redis://poor:canary-7f3a@");
    let start = Instant::now();
    let error = match LockManager::connect(&url).await {
        Err(error) => error,
        Ok(poor) => {
            let guard = poor.lock("p", "k").acquire().await.unwrap();
            guard.release().await.unwrap_err()
        }
    };
    assert!(start.elapsed() < Duration::from_secs(3));
    assert!(matches!(error, LockError::Backend { .. } | LockError::Connect { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
}

#[tokio::test]
async fn the_least_rights_that_the_docs_name_are_enough() {
    let server = Server::start();
    server.tell(&format!("ACL SETUSER least on >secret {LEAST}"));
    let url = server.url().replace("redis://", "redis://least:secret@");
    let north = manager(&url).await;
    let south = manager(&url).await;
    let guard = north.lock("p", "k").fenced(true).acquire().await.unwrap();
    is_confirmed(&guard, LONG).await;
    let waiter = tokio::spawn(async move { south.lock("p", "k").timeout(LONG).acquire().await });
    is_queued(&server).await;
    guard.release().await.unwrap();
    let released = Instant::now();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(released.elapsed() < Duration::from_millis(500), "{:?}", released.elapsed());
}

const PASSWORD: &str = "canary-7f3a";

/// Says what is wrong, in time, and not the password.
fn is_clear(error: &LockError, start: Instant) {
    assert!(matches!(error, LockError::Backend { .. } | LockError::Connect { .. }), "{error:?}");
    assert!(start.elapsed() < TIMEOUT + LATE + NOISE, "{:?}", start.elapsed());
    assert!(!format!("{error} {error:?}").contains(PASSWORD), "{error:?}");
}

/// A lock of his own for a user who lacks one right: a clear error or success, and nobody is blocked for long.
async fn lacks(server: &Server, right: &str) {
    server.tell(&format!("ACL SETUSER {right} on >{PASSWORD} {LEAST} -{right}"));
    let url = server.url().replace("redis://", &format!("redis://{right}:{PASSWORD}@"));
    let start = Instant::now();
    match LockManager::connect(&url).await {
        Err(error) => is_clear(&error, start),
        Ok(poor) => {
            let request =
                || poor.lock("p", right).timeout(TIMEOUT).expire(Duration::from_secs(2)).renew(false).fenced(true);
            let start = Instant::now();
            match request().acquire().await {
                Err(error) => is_clear(&error, start),
                Ok(guard) => {
                    let start = Instant::now();
                    if let Err(error) = request().acquire().await
                        && !error.is_timeout()
                    {
                        is_clear(&error, start);
                    }
                    let start = Instant::now();
                    if let Err(error) = guard.release().await {
                        is_clear(&error, start);
                    }
                }
            }
        }
    }
    // What is left of it: a claim, or the lease of two seconds that it could not release.
    let start = Instant::now();
    let next = manager(&server.url()).await.lock("p", right).timeout(LONG).acquire().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(3) + NOISE, "without {right}: {:?}", start.elapsed());
    next.release().await.unwrap();
}

#[tokio::test]
async fn row_44_a_user_who_lacks_any_one_right_is_told_so_and_blocks_nobody_for_long() {
    let server = Server::start();
    let rights = LEAST.split_whitespace().filter_map(|word| word.strip_prefix('+'));
    join_all(rights.map(|right| lacks(&server, right))).await;
}

/// What the user that the locks connect as can do, or who he is, changes while he holds and wants locks.
struct Worker {
    server: Server,
    locks: LockManager,
    guard: LockGuard,
}

const LEASE: Duration = Duration::from_millis(1500);

impl Worker {
    async fn at_work() -> Self {
        let server = Server::start();
        server.tell(&format!("ACL SETUSER worker on >{PASSWORD} {LEAST}"));
        let locks = manager(&server.url().replace("redis://", &format!("redis://worker:{PASSWORD}@"))).await;
        let guard = locks.lock("p", "held").expire(LEASE).renew(true).acquire().await.unwrap();
        is_confirmed(&guard, Duration::from_secs(1)).await;
        Self { server, locks, guard }
    }

    async fn is_told_so(&self) {
        for _ in 0..3 {
            let start = Instant::now();
            let error = self.locks.lock("p", "k").timeout(TIMEOUT).acquire().await.unwrap_err();
            is_clear(&error, start);
        }
    }

    async fn comes_back(self) {
        self.server.tell(&format!("ACL SETUSER worker reset on >{PASSWORD} {LEAST}"));
        is_had_soon(&self.locks).await.release().await.unwrap();
    }

    /// He can't renew what he holds either: it ends at its deadline, and for others a second later at most.
    async fn stays_shut_out_and_comes_back(self) {
        let start = Instant::now();
        self.is_told_so().await;
        is_lost(&self.guard).await;
        assert!(start.elapsed() < LEASE + LATE + NOISE, "{:?}", start.elapsed());
        let other = manager(&self.server.url()).await;
        let next = other.lock("p", "held").timeout(LONG).acquire().await.unwrap();
        assert!(start.elapsed() < LEASE + Duration::from_secs(1) + NOISE, "{:?}", start.elapsed());
        next.release().await.unwrap();
        self.comes_back().await;
    }
}

#[tokio::test]
async fn row_44_a_user_who_is_deleted_is_told_so_until_he_is_back() {
    let worker = Worker::at_work().await;
    worker.server.tell("ACL DELUSER worker");
    worker.stays_shut_out_and_comes_back().await;
}

#[tokio::test]
async fn row_44_a_password_that_changes_is_told_until_it_is_right_again() {
    let worker = Worker::at_work().await;
    worker.server.tell("ACL SETUSER worker resetpass >another");
    worker.server.tell("CLIENT KILL USER worker");
    worker.stays_shut_out_and_comes_back().await;
}

#[tokio::test]
async fn row_43_a_user_who_may_not_subscribe_any_more_is_told_so_until_he_may() {
    let worker = Worker::at_work().await;
    worker.server.tell("ACL SETUSER worker -subscribe");
    worker.server.tell("CLIENT KILL USER worker");
    worker.is_told_so().await;
    // Renewals need no channel.
    sleep(LEASE).await;
    assert!(worker.guard.is_valid());
    worker.comes_back().await;
}

#[tokio::test]
async fn row_43_a_holder_who_may_not_publish_costs_others_a_second() {
    let server = Server::start();
    server.tell(&format!("ACL SETUSER mute on >{PASSWORD} {LEAST} -publish"));
    let mute = manager(&server.url().replace("redis://", &format!("redis://mute:{PASSWORD}@"))).await;
    let other = manager(&server.url()).await;
    let guard = mute.lock("p", "k").acquire().await.unwrap();
    let waiter = tokio::spawn(other.lock("p", "k").timeout(LONG).acquire());
    is_queued(&server).await;
    guard.release().await.unwrap();
    let released = Instant::now();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(released.elapsed() < Duration::from_secs(1) + LATE + NOISE, "{:?}", released.elapsed());
}
