//! The locks connect as a user with few rights, or whose rights or password change.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_runtime::{LockError, LockGuard, LockManager};
use tests::patience::NOISE;
use tests::server::Server;
use tokio::time::sleep;

use crate::{
    LATE, LONG, TIMEOUT, assert_granted_soon, manager, wait_until_confirmed, wait_until_lost, wait_until_queued,
};

/// The rights in the docs.
const LEAST: &str = "~* &cache_lock:* -@all +set +get +del +pexpire +pttl +exists +zadd +zpopmin +zrange \
                     +zrem +zscore +time +publish +subscribe +unsubscribe +eval +evalsha +ping +hello";

#[tokio::test]
async fn row_44_a_user_without_the_right_to_scripts_gets_a_clear_error() {
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

/// So whatever fails below fails for the right that is missing. What the docs name is compared in `denials.rs`.
#[tokio::test]
async fn these_rights_are_enough() {
    let server = Server::start();
    server.tell(&format!("ACL SETUSER least on >secret {LEAST}"));
    let url = server.url().replace("redis://", "redis://least:secret@");
    let north = manager(&url).await;
    let south = manager(&url).await;
    let guard = north.lock("p", "k").fenced(true).acquire().await.unwrap();
    wait_until_confirmed(&guard, LONG).await;
    let waiter = tokio::spawn(async move { south.lock("p", "k").timeout(LONG).acquire().await });
    wait_until_queued(&server).await;
    guard.release().await.unwrap();
    let released = Instant::now();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(released.elapsed() < Duration::from_millis(500), "{:?}", released.elapsed());
}

const PASSWORD: &str = "canary-7f3a";

/// Checks that the error came in time, says what is wrong, and does not show the password.
fn assert_clear(error: &LockError, start: Instant) {
    assert!(matches!(error, LockError::Backend { .. } | LockError::Connect { .. }), "{error:?}");
    assert!(start.elapsed() < TIMEOUT + LATE + NOISE, "{:?}", start.elapsed());
    assert!(!format!("{error} {error:?}").contains(PASSWORD), "{error:?}");
}

/// A user who lacks one right asks for a lock: the result is success or a clear error, and others are not blocked for long.
async fn lacks(server: &Server, right: &str) {
    server.tell(&format!("ACL SETUSER {right} on >{PASSWORD} {LEAST} -{right}"));
    let url = server.url().replace("redis://", &format!("redis://{right}:{PASSWORD}@"));
    let start = Instant::now();
    match LockManager::connect(&url).await {
        Err(error) => assert_clear(&error, start),
        Ok(poor) => {
            let request =
                || poor.lock("p", right).timeout(TIMEOUT).expire(Duration::from_secs(2)).renew(false).fenced(true);
            let start = Instant::now();
            match request().acquire().await {
                Err(error) => assert_clear(&error, start),
                Ok(guard) => {
                    let start = Instant::now();
                    if let Err(error) = request().acquire().await
                        && !error.is_timeout()
                    {
                        assert_clear(&error, start);
                    }
                    let start = Instant::now();
                    if let Err(error) = guard.release().await {
                        assert_clear(&error, start);
                    }
                }
            }
        }
    }
    // What may be left: a claim, or a lease of two seconds that the user could not release.
    let start = Instant::now();
    let next = manager(&server.url()).await.lock("p", right).timeout(LONG).acquire().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(3) + NOISE, "without {right}: {:?}", start.elapsed());
    next.release().await.unwrap();
}

#[tokio::test]
async fn row_44_a_user_who_lacks_any_one_right_gets_a_clear_error_and_blocks_nobody_for_long() {
    let server = Server::start();
    let rights = LEAST.split_whitespace().filter_map(|word| word.strip_prefix('+'));
    join_all(rights.map(|right| lacks(&server, right))).await;
}

/// A manager with a held lock, whose user's rights or password a test changes.
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
        wait_until_confirmed(&guard, Duration::from_secs(1)).await;
        Self { server, locks, guard }
    }

    async fn assert_reported(&self) {
        for _ in 0..3 {
            let start = Instant::now();
            let error = self.locks.lock("p", "k").timeout(TIMEOUT).acquire().await.unwrap_err();
            assert_clear(&error, start);
        }
    }

    async fn assert_works_again(self) {
        self.server.tell(&format!("ACL SETUSER worker reset on >{PASSWORD} {LEAST}"));
        // The background tries to connect every 250 ms. A failed try counts for all callers for 50 ms.
        let back = Instant::now();
        while let Err(error) = self.locks.lock("p", "k").timeout(LONG).acquire().await {
            assert_clear(&error, back);
            assert!(back.elapsed() < Duration::from_millis(50) + NOISE, "{error}");
        }
        assert_granted_soon(&self.locks).await.release().await.unwrap();
    }

    /// The user can't renew the lock either: the hold ends at its deadline, and others get the lock at most a second later.
    async fn assert_shut_out_then_works_again(self) {
        let start = Instant::now();
        self.assert_reported().await;
        wait_until_lost(&self.guard).await;
        assert!(start.elapsed() < LEASE + LATE + NOISE, "{:?}", start.elapsed());
        let other = manager(&self.server.url()).await;
        let next = other.lock("p", "held").timeout(LONG).acquire().await.unwrap();
        assert!(start.elapsed() < LEASE + Duration::from_secs(1) + NOISE, "{:?}", start.elapsed());
        next.release().await.unwrap();
        self.assert_works_again().await;
    }
}

#[tokio::test]
async fn row_44_a_deleted_user_gets_clear_errors_until_it_is_back() {
    let worker = Worker::at_work().await;
    worker.server.tell("ACL DELUSER worker");
    worker.assert_shut_out_then_works_again().await;
}

#[tokio::test]
async fn row_44_a_changed_password_is_reported_until_it_is_right_again() {
    let worker = Worker::at_work().await;
    worker.server.tell("ACL SETUSER worker resetpass >another");
    worker.server.tell("CLIENT KILL USER worker");
    worker.assert_shut_out_then_works_again().await;
}

#[tokio::test]
async fn row_43_a_user_who_may_no_longer_subscribe_gets_clear_errors_until_it_may() {
    let worker = Worker::at_work().await;
    worker.server.tell("ACL SETUSER worker -subscribe");
    worker.server.tell("CLIENT KILL USER worker");
    worker.assert_reported().await;
    // Renewals work without the channel.
    sleep(LEASE).await;
    assert!(worker.guard.is_valid());
    worker.assert_works_again().await;
}

#[tokio::test]
async fn row_43_a_holder_who_may_not_publish_costs_others_a_second() {
    let server = Server::start();
    server.tell(&format!("ACL SETUSER mute on >{PASSWORD} {LEAST} -publish"));
    let mute = manager(&server.url().replace("redis://", &format!("redis://mute:{PASSWORD}@"))).await;
    let other = manager(&server.url()).await;
    let guard = mute.lock("p", "k").acquire().await.unwrap();
    let waiter = tokio::spawn(other.lock("p", "k").timeout(LONG).acquire());
    wait_until_queued(&server).await;
    guard.release().await.unwrap();
    let released = Instant::now();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(released.elapsed() < Duration::from_secs(1) + LATE + NOISE, "{:?}", released.elapsed());
}
