//! Readers share a lock; a writer excludes all others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager, LockMode, LockRequest};
use tests::over_every_store;
use tests::patience::NOISE;
use tests::stores::World;
use tokio::time::{Instant, sleep, timeout};

use crate::{LONG, SHORT, is_free, refuses_sharing};

over_every_store![
    readers_share_and_a_writer_waits_for_all_of_them,
    readers_wait_for_a_writer,
    readers_that_come_after_a_waiting_writer_wait_for_it,
    a_writer_does_not_keep_out_the_readers_that_wait,
    a_writer_excludes_all_others,
    many_readers_of_one_process_have_one_lease,
    readers_that_wait_here_start_together,
    a_read_lock_lasts_beyond_its_lease,
    a_reader_without_renewal_ends_alone,
    a_reader_reports_that_its_max_hold_is_over,
    a_reader_inside_a_reader_or_a_writer_enters_at_once,
    a_writer_inside_a_reader_is_refused_at_once,
    each_reader_has_a_fencing_token_of_its_own,
    a_look_shows_all_readers,
    all_readers_are_stopped_by_force,
    a_reader_that_gives_up_leaves_nothing,
    a_dropped_reader_makes_way_for_a_writer,
    a_dropped_guard_makes_way_for_a_try_in_another_mode,
    a_reader_that_joins_does_not_shorten_the_time_that_writers_are_kept_out,
];

async fn a_dropped_guard_makes_way_for_a_try_in_another_mode(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let manager = world.manager().await;
    let modes: [fn(LockRequest) -> LockRequest; 3] = [|lock| lock, LockRequest::read, |lock| lock.permits(2)];
    for (before, after) in [(0, 1), (0, 2), (1, 0), (2, 0), (1, 2), (2, 1)] {
        for round in 0..20 {
            let request = |mode: usize| modes[mode](manager.lock("p", &round).timeout(LONG));
            drop(request(before).acquire().await.unwrap());
            let got = request(after).try_acquire().await.unwrap();
            assert!(got.is_some(), "round {round}: mode {before}, then {after}");
            got.unwrap().release().await.unwrap();
        }
    }
}

/// With and without other readers, with a body and with a guard.
async fn a_reader_reports_that_its_max_hold_is_over(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let manager = world.manager().await;
    let longest = SHORT * 2;
    let request = || manager.lock("p", "k").read().timeout(LONG).max_hold(longest);
    for others in 0..2 {
        let other = if others > 0 { Some(read(&manager).await) } else { None };
        let body = request().run(std::future::pending::<()>()).await.unwrap_err();
        let fenced = request().fenced(true).run(std::future::pending::<()>()).await.unwrap_err();
        let guard = request().acquire().await.unwrap();
        guard.lost().await;
        let guard = guard.release().await.unwrap_err();
        for error in [body, fenced, guard] {
            let is_said = matches!(error, LockError::Lost { max_hold: Some(told), .. } if told == longest);
            assert!(is_said, "with {others} others: {error:?}");
        }
        drop(other);
    }
}

async fn read(manager: &LockManager) -> LockGuard {
    manager.lock("p", "k").read().timeout(LONG).acquire().await.unwrap()
}

async fn write(manager: &LockManager) -> LockGuard {
    manager.lock("p", "k").timeout(LONG).acquire().await.unwrap()
}

/// Whether one more reader gets the lock now.
async fn can_read(manager: &LockManager) -> bool {
    manager.lock("p", "k").read().try_acquire().await.unwrap().is_some()
}

/// Waits until readers queue behind a writer: their process learns of the writer by a message.
async fn readers_wait(managers: &[&LockManager]) {
    let start = Instant::now();
    for manager in managers {
        while can_read(manager).await {
            assert!(start.elapsed() < Duration::from_secs(1) + NOISE, "a reader overtakes a writer");
            sleep(Duration::from_millis(1)).await;
        }
    }
}

async fn readers_share_and_a_writer_waits_for_all_of_them(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let (north, south) = (world.manager().await, world.manager().await);
    let mut readers = vec![read(&north).await, read(&north).await, read(&south).await];
    let mut writer = Box::pin(write(&south));
    while let Some(reader) = readers.pop() {
        assert!(timeout(Duration::from_millis(20), &mut writer).await.is_err(), "a writer and a reader at once");
        assert!(!is_free(&north, "k").await);
        reader.release().await.unwrap();
    }
    let writer = timeout(LONG / 2, writer).await.unwrap();
    assert!(!can_read(&north).await && !can_read(&south).await, "a reader and a writer at once");
    writer.release().await.unwrap();
    assert!(can_read(&north).await);
}

async fn readers_wait_for_a_writer(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let (north, south) = (world.manager().await, world.manager().await);
    let writer = write(&north).await;
    let refused = south.lock("p", "k").read().timeout(Duration::from_millis(30)).acquire().await.unwrap_err();
    assert!(refused.is_timeout(), "{refused}");
    let (mut here, mut there) = (Box::pin(read(&north)), Box::pin(read(&south)));
    tokio::select! {
        _ = &mut here => unreachable!("a reader and a writer at once"),
        _ = &mut there => unreachable!("a reader and a writer at once"),
        () = sleep(Duration::from_millis(30)) => {}
    }
    writer.release().await.unwrap();
    let _guards = timeout(LONG / 2, async { (here.await, there.await) }).await.unwrap();
}

async fn readers_that_come_after_a_waiting_writer_wait_for_it(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let (north, south) = (world.manager().await, world.manager().await);
    for (writes, reads) in [(&north, &south), (&south, &north), (&north, &north)] {
        let (first, second) = (read(&north).await, read(reads).await);
        let mut writer = Box::pin(write(writes));
        assert!(timeout(Duration::from_millis(50), &mut writer).await.is_err());
        readers_wait(&[&north, &south]).await;
        let mut reader = Box::pin(read(reads));
        assert!(timeout(Duration::from_millis(20), &mut reader).await.is_err(), "a reader overtakes a writer");
        first.release().await.unwrap();
        second.release().await.unwrap();
        let writer = timeout(LONG / 2, writer).await.unwrap();
        assert!(timeout(Duration::from_millis(20), &mut reader).await.is_err(), "a reader and a writer at once");
        writer.release().await.unwrap();
        timeout(LONG / 2, reader).await.unwrap().release().await.unwrap();
    }
}

async fn a_writer_does_not_keep_out_the_readers_that_wait(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let (north, south) = (world.manager().await, world.manager().await);
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let north = north.clone();
            tokio::spawn(async move {
                for _ in 0..100 {
                    let guard = write(&north).await;
                    sleep(Duration::from_millis(1)).await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    sleep(Duration::from_millis(20)).await;
    for reads in [&north, &south] {
        let start = Instant::now();
        read(reads).await.release().await.unwrap();
        // A series of hand-overs lasts for at most 10 ms.
        assert!(start.elapsed() < Duration::from_millis(50) + NOISE, "{:?}", start.elapsed());
    }
    for writer in writers {
        writer.abort();
    }
}

/// Counts the holders.
#[derive(Default)]
struct Inside {
    readers: AtomicUsize,
    writers: AtomicUsize,
    most_readers: AtomicUsize,
}

impl Inside {
    fn begin(&self, writes: bool) {
        let (readers, writers) = if writes {
            (self.readers.load(Ordering::SeqCst), self.writers.fetch_add(1, Ordering::SeqCst))
        } else {
            let readers = self.readers.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_readers.fetch_max(readers, Ordering::SeqCst);
            (0, self.writers.load(Ordering::SeqCst))
        };
        assert_eq!((readers, writers), (0, 0), "a writer and another holder at once");
    }

    fn end(&self, writes: bool) {
        let count = if writes { &self.writers } else { &self.readers };
        count.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn a_writer_excludes_all_others(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let managers = [world.manager().await, world.manager().await];
    let inside = Arc::new(Inside::default());
    let users: Vec<_> = (0..24)
        .map(|number| {
            let (manager, inside) = (managers[number % 2].clone(), Arc::clone(&inside));
            tokio::spawn(async move {
                for round in 0..12 {
                    let writes = (number + round) % 4 == 0;
                    let request = manager.lock("p", "k").timeout(LONG);
                    let request = if writes { request } else { request.read() };
                    let guard = request.acquire().await.unwrap();
                    inside.begin(writes);
                    sleep(Duration::from_millis(u64::try_from(number % 3).unwrap())).await;
                    inside.end(writes);
                    if round % 3 == 0 { drop(guard) } else { guard.release().await.unwrap() }
                }
            })
        })
        .collect();
    for user in users {
        user.await.unwrap();
    }
    assert!(inside.most_readers.load(Ordering::SeqCst) > 2, "readers never shared");
    // Dropped guards are released in the background.
    let start = Instant::now();
    write(&managers[0]).await.release().await.unwrap();
    assert!(start.elapsed() < NOISE, "{:?}", start.elapsed());
}

async fn many_readers_of_one_process_have_one_lease(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let manager = world.manager().await;
    let first = read(&manager).await;
    // Wait until the first reader's lease is confirmed.
    sleep(Duration::from_millis(50)).await;
    let before = manager.stats().commands;
    for _ in 0..50 {
        let guards = [read(&manager).await, read(&manager).await];
        for guard in guards {
            guard.release().await.unwrap();
        }
    }
    assert!(manager.stats().commands - before <= 2, "a command for each reader");
    assert_eq!(manager.stats().held, 1);
    first.release().await.unwrap();
    assert_eq!((manager.stats().held, manager.stats().acquired), (0, 101));
}

async fn readers_that_wait_here_start_together(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let (north, south) = (world.manager().await, world.manager().await);
    let writer = write(&south).await;
    let inside = Arc::new(Inside::default());
    let readers: Vec<_> = (0..20)
        .map(|_| {
            let (north, inside) = (north.clone(), Arc::clone(&inside));
            tokio::spawn(async move {
                let guard = read(&north).await;
                inside.begin(false);
                sleep(Duration::from_millis(100)).await;
                inside.end(false);
                guard.release().await.unwrap();
            })
        })
        .collect();
    sleep(Duration::from_millis(50)).await;
    writer.release().await.unwrap();
    for reader in readers {
        reader.await.unwrap();
    }
    assert_eq!(inside.most_readers.load(Ordering::SeqCst), 20);
}

async fn a_read_lock_lasts_beyond_its_lease(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let (north, south) = (world.manager().await, world.manager().await);
    let request = |manager: &LockManager| manager.lock("p", "k").read().expire(SHORT);
    let (one, other) = (request(&north).acquire().await.unwrap(), request(&south).acquire().await.unwrap());
    sleep(SHORT * 3).await;
    assert!(one.is_valid() && other.is_valid());
    assert!(!is_free(&north, "k").await);
    one.release().await.unwrap();
    other.release().await.unwrap();
    assert!(is_free(&north, "k").await);
}

async fn a_reader_without_renewal_ends_alone(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let manager = world.manager().await;
    let lasting = read(&manager).await;
    let short = manager.lock("p", "k").read().expire(SHORT).renew(false).acquire().await.unwrap();
    timeout(SHORT + NOISE, short.lost()).await.unwrap();
    assert!(lasting.is_valid());
    assert!(short.release().await.unwrap_err().is_lost());
    lasting.release().await.unwrap();
    assert!(is_free(&manager, "k").await);
}

async fn a_reader_inside_a_reader_or_a_writer_enters_at_once(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let (manager, other) = (world.manager().await, world.manager().await);
    let inner = || manager.lock("p", "k").read().timeout(Duration::ZERO).run(sleep(Duration::from_millis(20)));
    manager.lock("p", "k").run(async { inner().await.unwrap() }).await.unwrap();
    let outer = manager.lock("p", "k").read().run(async {
        let mut writer = Box::pin(write(&other));
        assert!(timeout(Duration::from_millis(50), &mut writer).await.is_err());
        let start = Instant::now();
        let (one, another) = tokio::join!(inner(), inner());
        one.unwrap();
        another.unwrap();
        (start.elapsed(), writer)
    });
    let (took, writer) = outer.await.unwrap();
    assert!(took < Duration::from_millis(20) + NOISE, "a waiting writer keeps out a nested reader: {took:?}");
    drop(writer.await);
}

async fn a_writer_inside_a_reader_is_refused_at_once(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let manager = world.manager().await;
    let start = Instant::now();
    let writer = || manager.lock("p", "k").timeout(LONG);
    let (body, guard) = manager
        .lock("p", "k")
        .read()
        .run(async { (writer().run(async {}).await, writer().acquire().await) })
        .await
        .unwrap();
    for refused in [body.unwrap_err(), guard.unwrap_err()] {
        assert!(matches!(refused, LockError::AlreadyHeld { wants_more: true, .. }), "{refused:?}");
    }
    assert!(start.elapsed() < LONG / 2);
}

async fn each_reader_has_a_fencing_token_of_its_own(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let (north, south) = (world.manager().await, world.manager().await);
    let mut last = None;
    let mut all = BTreeSet::new();
    for round in 0..3 {
        let mut guards = Vec::new();
        for manager in [&north, &north, &south, &north] {
            let request = manager.lock("p", "k").timeout(LONG).fenced(true);
            let guard = request.read().acquire().await.unwrap();
            assert!(guard.fencing_token() > last, "{round}");
            last = guard.fencing_token();
            all.extend(last);
            guards.push(guard);
        }
        drop(guards);
        let writer = south.lock("p", "k").timeout(LONG).fenced(true).acquire().await.unwrap();
        assert!(writer.fencing_token() > last, "a writer's token is greater than those of the readers before it");
        last = writer.fencing_token();
        writer.release().await.unwrap();
    }
    assert_eq!(all.len(), 12);
}

async fn a_look_shows_all_readers(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let north = world.manager_with(LockManager::builder().label("north")).await;
    let south = world.manager_with(LockManager::builder().label("south|2")).await;
    let _guards = [read(&north).await, read(&north).await, read(&south).await];
    let seen = south.inspect("p", "k").await.unwrap().unwrap();
    assert_eq!(seen.holders, ["north", "south|2"]);
    assert_eq!((seen.mode, seen.is_held_here, seen.is_forced), (LockMode::Read, true, false));
    assert!(seen.remaining > SHORT && seen.remaining <= LONG * 3, "{seen:?}");
    assert!(south.is_locked("p", "k").await.unwrap());
    let busy = south.lock("p", "k").try_acquire().await.unwrap();
    assert!(busy.is_none());
}

async fn all_readers_are_stopped_by_force(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let (north, south) = (world.manager().await, world.manager().await);
    let bodies: Vec<_> = [&north, &north, &south]
        .map(|manager| {
            let manager = manager.clone();
            tokio::spawn(async move { manager.lock("p", "k").read().run(std::future::pending::<()>()).await })
        })
        .into();
    while north.stats().held + south.stats().held < 3 {
        sleep(Duration::from_millis(1)).await;
    }
    sleep(Duration::from_millis(50)).await;
    let start = Instant::now();
    assert!(south.force_release("p", "k").await.unwrap());
    write(&north).await.release().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    for body in bodies {
        let lost = body.await.unwrap().unwrap_err();
        assert!(matches!(lost, LockError::Lost { forced: true, .. }), "{lost:?}");
    }
}

async fn a_reader_that_gives_up_leaves_nothing(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let (north, south) = (world.manager().await, world.manager().await);
    let writer = write(&north).await;
    for manager in [&north, &south] {
        let waiting = timeout(Duration::from_millis(20), read(manager)).await;
        assert!(waiting.is_err());
    }
    writer.release().await.unwrap();
    // The queue is empty, so the next request gets the lock at once.
    let start = Instant::now();
    write(&south).await.release().await.unwrap();
    assert!(start.elapsed() < NOISE, "{:?}", start.elapsed());
    let reader = read(&north).await;
    let waiting = timeout(Duration::from_millis(20), write(&south)).await;
    assert!(waiting.is_err());
    let start = Instant::now();
    read(&south).await.release().await.unwrap();
    assert!(start.elapsed() < NOISE, "a writer that gave up keeps readers out: {:?}", start.elapsed());
    reader.release().await.unwrap();
}

async fn a_dropped_reader_makes_way_for_a_writer(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let (north, south) = (world.manager().await, world.manager().await);
    for writes in [&north, &south] {
        let readers = [read(&north).await, read(&north).await, read(&south).await];
        let mut writer = Box::pin(write(writes));
        assert!(timeout(Duration::from_millis(20), &mut writer).await.is_err());
        drop(readers);
        timeout(LONG / 2, writer).await.unwrap().release().await.unwrap();
    }
}

async fn a_reader_that_joins_does_not_shorten_the_time_that_writers_are_kept_out(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let (north, south) = (world.manager().await, world.manager().await);
    let kept = Duration::from_secs(1);
    let outer = async {
        let nested = north.lock("p", "k").read().at_least(kept).run(async { Instant::now() }).await.unwrap();
        let manager = north.clone();
        let joins = tokio::spawn(async move { manager.lock_all("p", ["k"]).read().run(async {}).await });
        joins.await.unwrap().unwrap();
        nested
    };
    let start = north.lock("p", "k").read().run(outer).await.unwrap();
    for manager in [&north, &south, &north] {
        assert!(can_read(manager).await, "a reader must keep out writers only");
    }
    write(&south).await.release().await.unwrap();
    assert!(start.elapsed() > kept.saturating_sub(Duration::from_millis(100)), "{:?}", start.elapsed());
}
