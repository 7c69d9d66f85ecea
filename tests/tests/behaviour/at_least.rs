//! A lock that keeps others out for a minimum time, also when its hold ends sooner:
//! [`LockRequest::at_least`](lock_runtime::LockRequest::at_least).

use std::time::Duration;

use lock_runtime::{LockError, LockInfo, LockManager, LockMode, LockRequest};
use tests::over_every_store;
use tests::patience::{NOISE, eventually};
use tests::stores::World;
use tokio::time::{Instant, sleep};

use crate::{LONG, SHORT, is_free};

over_every_store![
    nobody_gets_the_lock_sooner_when_the_body_ends,
    nobody_gets_the_lock_sooner_when_the_body_fails_or_is_dropped,
    nobody_gets_the_lock_sooner_when_the_guard_is_dropped,
    a_task_of_the_same_process_waits_as_well,
    others_get_the_lock_when_the_time_is_over,
    a_longer_body_releases_at_its_end,
    the_store_keeps_others_out_before_the_body_starts,
    a_lease_that_is_shorter_does_not_matter,
    a_lost_hold_keeps_others_out_as_well,
    an_orderly_stop_skips_no_period,
    after_the_hold_the_lease_lasts_only_for_the_rest,
    an_earlier_waiter_gets_the_lock_when_the_rest_is_over,
    a_request_that_finds_the_lock_resting_says_so,
    a_permit_rests_and_a_reader_keeps_writers_out,
    a_body_that_enters_again_keeps_others_out_from_its_own_start,
    a_lock_that_is_kept_is_not_held,
    a_lock_that_is_kept_can_be_taken_by_force,
    an_earlier_holder_of_the_lease_does_not_count,
    a_time_beyond_reason_is_refused,
    a_time_of_zero_keeps_nobody_out,
];

/// Long enough that delays on a busy machine don't use it up.
const KEPT: Duration = Duration::from_secs(1);

/// How late a waiter may be when the holder's process is gone.
const BEAT: Duration = Duration::from_secs(1);

fn request(manager: &LockManager) -> LockRequest {
    manager.lock("p", "k").timeout(LONG).at_least(KEPT)
}

/// A hold began between these two instants. It keeps others out from its beginning; its body starts a moment later.
#[derive(Clone, Copy)]
struct Begun {
    after: Instant,
    by: Instant,
}

impl Begun {
    /// The hold of an acquire that started at `after` and has just returned.
    fn now(after: Instant) -> Self {
        Self { after, by: Instant::now() }
    }

    fn assert_kept(self, end: Instant, world: &World) {
        let (most, least) = (end - self.after, end - self.by);
        assert!(most >= KEPT && least < KEPT + NOISE + world.pause(), "{least:?} to {most:?}");
    }
}

/// Runs a body that ends at once, and returns when its hold began.
async fn hold_once(request: LockRequest) -> Begun {
    let after = Instant::now();
    request.run(async { Begun::now(after) }).await.unwrap()
}

/// Waits for the lock in another process, and returns when it was granted.
async fn another_waits(other: &LockManager) -> Instant {
    assert!(!is_free(other, "k").await);
    let guard = other.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    let end = Instant::now();
    guard.release().await.unwrap();
    end
}

async fn nobody_gets_the_lock_sooner_when_the_body_ends(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let begun = hold_once(request(&manager)).await;
    assert!(begun.by.elapsed() < KEPT / 2, "the caller does not wait");
    begun.assert_kept(another_waits(&other).await, &world);
    assert!(is_free(&manager, "k").await);
}

async fn nobody_gets_the_lock_sooner_when_the_body_fails_or_is_dropped(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let start = Instant::now();
    let mut begun = Begun::now(start);
    let body = async {
        begun = Begun::now(start);
        sleep(LONG).await;
    };
    tokio::time::timeout(KEPT / 3, request(&manager).run(body)).await.unwrap_err();
    begun.assert_kept(another_waits(&other).await, &world);
    let (manager, start) = (manager.clone(), Instant::now());
    let failed = tokio::spawn(async move { request(&manager).run(async { panic!("on purpose") }).await });
    assert!(failed.await.unwrap_err().is_panic());
    let waited = another_waits(&other).await - start;
    assert!(waited >= KEPT && waited < KEPT + NOISE * 2, "{waited:?}");
}

async fn nobody_gets_the_lock_sooner_when_the_guard_is_dropped(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let start = Instant::now();
    let guard = request(&manager).acquire().await.unwrap();
    let begun = Begun::now(start);
    drop(guard);
    begun.assert_kept(another_waits(&other).await, &world);
    let start = Instant::now();
    let guard = request(&manager).acquire().await.unwrap();
    let begun = Begun::now(start);
    guard.release().await.unwrap();
    begun.assert_kept(another_waits(&other).await, &world);
}

async fn a_task_of_the_same_process_waits_as_well(world: World) {
    let manager = world.manager().await;
    hold_once(request(&manager)).await.assert_kept(another_waits(&manager).await, &world);
    let begun = hold_once(request(&manager)).await;
    let busy = manager.lock("p", "k").timeout(KEPT / 3).acquire().await.unwrap_err();
    assert!(matches!(busy, LockError::Timeout { held_here: true, .. }), "{busy:?}");
    let (first, second) = tokio::join!(request(&manager).run(sleep(KEPT / 3)), another_waits(&manager));
    first.unwrap();
    assert!(second - begun.after >= KEPT * 2, "{:?}", second - begun.after);
}

async fn others_get_the_lock_when_the_time_is_over(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let begun = hold_once(request(&manager)).await;
    let waits = async |locks: &LockManager| {
        let guard = locks.lock("p", "k").timeout(LONG).acquire().await.unwrap();
        let end = Instant::now();
        guard.release().await.unwrap();
        end
    };
    let (here, there) = tokio::join!(waits(&manager), waits(&other));
    begun.assert_kept(here, &world);
    begun.assert_kept(there, &world);
}

async fn a_longer_body_releases_at_its_end(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    request(&manager).expire(SHORT).run(sleep(KEPT * 2)).await.unwrap();
    assert!(is_free(&other, "k").await);
}

/// If the process dies in the body's first step, only the store can keep others out.
async fn the_store_keeps_others_out_before_the_body_starts(world: World) {
    let manager = world.manager().await;
    let kept = Duration::from_secs(50);
    let body = async {
        world.agrees().await;
        world.keys()
    };
    let Some(keys) = manager.lock("p", "k").at_least(kept).expire(SHORT).run(body).await.unwrap() else { return };
    let left = Duration::from_millis(u64::try_from(keys["p:k"]).unwrap());
    assert!(left + NOISE >= kept && left < kept * 2, "{left:?}");
}

async fn a_lease_that_is_shorter_does_not_matter(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    for renew in [true, false] {
        let request = request(&manager).expire(KEPT / 4).renew(renew);
        hold_once(request).await.assert_kept(another_waits(&other).await, &world);
    }
}

async fn a_lost_hold_keeps_others_out_as_well(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let forever = std::future::pending::<()>;
    let requests: [fn(LockRequest) -> LockRequest; 2] =
        [|request| request.max_hold(KEPT / 3), |request| request.expire(KEPT / 3).renew(false)];
    for limited in requests {
        let start = Instant::now();
        let lost = limited(request(&manager)).run(forever()).await.unwrap_err();
        assert!(lost.is_lost(), "{lost:?}");
        assert!(start.elapsed() < KEPT, "{:?}", start.elapsed());
        assert!(!is_free(&manager, "k").await && !is_free(&other, "k").await);
        // The lease also covers the time that a reply may take.
        let waited = another_waits(&other).await - start;
        assert!(waited >= KEPT && waited < KEPT + Duration::from_secs(2), "{waited:?}");
    }
}

/// The lease has the default length, 30 s.
async fn an_orderly_stop_skips_no_period(world: World) {
    let other = world.manager().await;
    for ends_before in [true, false] {
        let manager = world.manager_with(LockManager::builder().drain(Duration::ZERO)).await;
        let start = Instant::now();
        let guard = request(&manager).acquire().await.unwrap();
        let body = tokio::spawn(manager.lock("p", "body").at_least(KEPT).run(sleep(LONG)));
        eventually("both are held", NOISE, || manager.stats().held == 2).await;
        let begun = Instant::now();
        let guard = if ends_before {
            drop(guard);
            None
        } else {
            Some(guard)
        };
        manager.shutdown().await;
        assert!(start.elapsed() < KEPT, "the shutdown does not wait");
        assert!(body.await.unwrap().unwrap_err().is_lost());
        drop(guard);
        for key in ["k", "body"] {
            other.lock("p", key).timeout(LONG).acquire().await.unwrap().release().await.unwrap();
            let (most, least) = (start.elapsed(), begun.elapsed());
            assert!(most >= KEPT && least < KEPT + BEAT, "{key} {least:?} to {most:?}");
        }
    }
}

/// Waits until the lock rests, and returns what another process sees.
async fn resting(other: &LockManager) -> LockInfo {
    let end = Instant::now() + KEPT;
    loop {
        let seen = other.inspect("p", "k").await.unwrap().unwrap();
        if seen.rests {
            return seen;
        }
        assert!(Instant::now() < end, "{seen:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

async fn after_the_hold_the_lease_lasts_only_for_the_rest(world: World) {
    let (manager, other) = (world.manager_with(LockManager::builder().label("job")).await, world.manager().await);
    let kept = KEPT * 10;
    manager.lock("p", "k").at_least(kept).run(async {}).await.unwrap();
    let seen = resting(&other).await;
    assert!(seen.remaining + KEPT > kept && seen.remaining < kept + KEPT, "{seen:?}");
    assert!(seen.holder.as_deref() == Some("job") && !seen.is_forced && !seen.is_held_here, "{seen:?}");
    assert!(!manager.inspect("p", "k").await.unwrap().unwrap().is_held_here);
}

async fn an_earlier_waiter_gets_the_lock_when_the_rest_is_over(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let after = Instant::now();
    let guard = request(&manager).acquire().await.unwrap();
    let begun = Begun::now(after);
    let waits = [&other, &manager, &other].map(|locks| {
        let request = locks.lock("p", "k").timeout(LONG);
        tokio::spawn(async move {
            request.acquire().await.unwrap().release().await.unwrap();
            Instant::now()
        })
    });
    sleep(KEPT / 3).await;
    guard.release().await.unwrap();
    for waits in waits {
        begun.assert_kept(waits.await.unwrap(), &world);
    }
}

async fn a_request_that_finds_the_lock_resting_says_so(world: World) {
    let (manager, other) = (world.manager_with(LockManager::builder().label("job")).await, world.manager().await);
    manager.lock("p", "k").at_least(LONG).run(async {}).await.unwrap();
    resting(&other).await;
    for (locks, is_here) in [(&manager, true), (&other, false)] {
        for timeout in [Duration::ZERO, SHORT] {
            let told = locks.lock("p", "k").timeout(timeout).acquire().await.unwrap_err();
            let text = told.to_string();
            let LockError::Timeout { rests, held_here, .. } = told else { panic!("{told:?}") };
            assert!(rests && held_here == is_here, "{text}");
            assert!(text.contains("rests") && text.contains("last held by job"), "{text}");
        }
    }
}

async fn a_permit_rests_and_a_reader_keeps_writers_out(world: World) {
    if world.is_quorum() {
        return;
    }
    let (manager, other) = (world.manager().await, world.manager().await);
    for of in [|request: LockRequest| request.permits(1), |request: LockRequest| request.read()] {
        let begun = hold_once(of(request(&manager))).await;
        assert!(resting(&other).await.remaining < KEPT + NOISE);
        let alike = of(manager.lock("p", "k")).timeout(Duration::ZERO).acquire().await;
        assert_eq!(alike.is_ok(), other.inspect("p", "k").await.unwrap().unwrap().mode == LockMode::Read);
        drop(alike);
        begun.assert_kept(another_waits(&other).await, &world);
    }
}

async fn a_body_that_enters_again_keeps_others_out_from_its_own_start(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let body = async {
        sleep(KEPT / 3).await;
        hold_once(request(&manager)).await
    };
    let begun = manager.lock("p", "k").expire(KEPT / 3).run(body).await.unwrap();
    begun.assert_kept(another_waits(&other).await, &world);
}

async fn a_lock_that_is_kept_is_not_held(world: World) {
    let manager = world.manager().await;
    let guard = request(&manager).acquire().await.unwrap();
    assert_eq!(manager.stats().held, 1);
    drop(guard);
    assert_eq!((manager.stats().held, manager.stats().lost), (0, 0));
    assert!(!is_free(&manager, "k").await);
}

async fn a_lock_that_is_kept_can_be_taken_by_force(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    if world.is_quorum() {
        return;
    }
    let start = Instant::now();
    manager.lock("p", "k").at_least(LONG).run(async {}).await.unwrap();
    assert!(!is_free(&other, "k").await);
    assert!(other.force_release("p", "k").await.unwrap());
    for locks in [&other, &manager] {
        locks.lock("p", "k").timeout(LONG / 4).acquire().await.unwrap().release().await.unwrap();
    }
    assert!(start.elapsed() < LONG / 2);
}

/// The earlier holder has used up most of the lease.
async fn an_earlier_holder_of_the_lease_does_not_count(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let short = manager.lock("p", "k").expire(SHORT).renew(false).acquire().await.unwrap();
    let next = async {
        let kept = Duration::from_secs(3);
        let request = manager.lock("p", "k").timeout(LONG).at_least(kept).expire(SHORT);
        (request.run(async { Instant::now() }).await.unwrap(), kept)
    };
    let (after, (by, kept)) = tokio::join!(
        async {
            sleep(SHORT / 3).await;
            let after = Instant::now();
            drop(short);
            after
        },
        next
    );
    let guard = other.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    let (most, least) = (after.elapsed(), by.elapsed());
    assert!(most >= kept && least < kept + NOISE + world.pause(), "{least:?} to {most:?}");
    guard.release().await.unwrap();
}

async fn a_time_beyond_reason_is_refused(world: World) {
    let manager = world.manager().await;
    let error = manager.lock("p", "k").at_least(Duration::from_hours(366 * 24)).acquire().await.unwrap_err();
    assert!(matches!(error, LockError::InvalidSetting { setting: "at_least", .. }), "{error:?}");
}

async fn a_time_of_zero_keeps_nobody_out(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    manager.lock("p", "k").at_least(Duration::ZERO).run(async {}).await.unwrap();
    assert!(is_free(&other, "k").await);
}
