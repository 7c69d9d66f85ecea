//! Replies that do not arrive in time, or are not read in time.

use tokio::time::Instant;

use super::*;
use crate::mutants::{Mutant, Seeded};

/// Silence and the whole wait end at the same instant.
fn until(by: Instant) -> Patience {
    Patience { silent_at: by, silence: Duration::ZERO, end: by }
}

/// The server answers one command after another, and the last one later than a silent server would be given up.
#[tokio::test(start_paused = true)]
async fn a_server_that_answers_others_is_not_silent_and_is_waited_for_to_the_end() {
    const SILENCE: Duration = Duration::from_millis(800);
    for (bug, end, is_right) in [
        (None, Some(true), true),
        (None, None, true),
        (None, Some(false), true),
        (Some(Mutant::BusyIsSilent), Some(true), false),
    ] {
        let _seeded = Seeded::begin(bug);
        let (wire, mut far, _) = connected().await;
        tokio::spawn(wire.watch());
        settled().await;
        let begin = Instant::now();
        // The last answer arrives after 1.8 s, or nothing more arrives after the first one.
        let span = if end == Some(false) { LONG / 5 } else { LONG };
        let patience = Patience { silent_at: begin + SILENCE, silence: SILENCE, end: begin + span };
        let key = get("k");
        let asking = async {
            let all = join_all((0..4).map(|_| wire.until(Some(patience)).send(&key))).await;
            (all.into_iter().last().unwrap(), begin.elapsed())
        };
        let server = async {
            for _ in 0..if end.is_some() { 4 } else { 1 } {
                tokio::time::sleep(Duration::from_millis(450)).await;
                far.write_all(b":1\r\n").await.unwrap();
            }
        };
        let ((last, took), ()) = join(asking, server).await;
        let is_as_told = match end {
            Some(true) => last.is_ok(),
            // Its time was over while others were answered.
            Some(false) => matches!(last, Err(NoReply::Overdue { is_silent: false })) && took < span * 2,
            // Silence since the first answer.
            None => matches!(last, Err(NoReply::Overdue { is_silent: true })) && took < SILENCE * 3,
        };
        assert_eq!(is_as_told, is_right, "{bug:?} {end:?}: {last:?} {took:?}");
    }
}

/// The first reply that is due need not be the one to the first command.
#[tokio::test(start_paused = true)]
async fn a_reply_that_does_not_arrive_in_time_ends_the_wait() {
    for (bug, is_right) in [(None, true), (Some(Mutant::EarlierReplyUnwatched), false)] {
        let _seeded = Seeded::begin(bug);
        let (wire, mut far, _) = connected().await;
        tokio::spawn(wire.watch());
        settled().await;
        let begin = Instant::now();
        let (slow, fast, key) = (begin + LONG, begin + LONG / 5, get("k"));
        let overdue = async |by| {
            let reply = wire.until(Some(until(by))).send(&key).await;
            assert!(matches!(reply, Err(NoReply::Overdue { .. })));
            begin.elapsed()
        };
        let later = async {
            settled().await;
            overdue(fast).await
        };
        let (long, short) = join(overdue(slow), later).await;
        assert_eq!((long < LONG + LONG / 100, short < LONG / 4), (true, is_right), "{bug:?}: {long:?} {short:?}");
        // Both replies arrive late, and are discarded.
        let server = async {
            settled().await;
            far.write_all(b":1\r\n:2\r\n:3\r\n").await.unwrap();
        };
        let (reply, ()) = join(wire.until(Some(until(begin + LONG * 2))).send(&key), server).await;
        assert_eq!(reply.unwrap(), Value::Int(3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_its_connection() {
    for is_left in [true, false] {
        let (wire, far, _) = connected().await;
        let watch = tokio::spawn(wire.watch());
        settled().await;
        if is_left {
            drop(wire);
        } else {
            drop(far);
        }
        timeout(LONG, watch).await.unwrap().unwrap();
    }
}

/// What waits for the reply on the blocked thread.
#[derive(Clone, Copy, Debug)]
enum Asking {
    /// A task.
    Spawned,
    /// The future that the runtime was started with. It is polled before all tasks.
    Root,
    /// The task that blocks the thread. It is polled again before the runtime has polled its sockets.
    Itself,
}

const BLOCKED: Duration = Duration::from_millis(400);

/// The reply to a command that is due while the thread is blocked. The watch runs on another thread, and has ended the wait long before
/// this thread can check.
fn read_late(asking: Asking) -> Result<Value, NoReply> {
    let keeper = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let (blocking, is_blocked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut far, _) = server.accept().unwrap();
        let read = std::io::Read::read(&mut far, &mut [0; 4096]).unwrap();
        // Now the thread is blocked.
        is_blocked.recv().unwrap();
        std::io::Write::write_all(&mut far, b":1\r\n").unwrap();
        // Stay open until the other end is closed.
        (read, std::io::Read::read(&mut far, &mut [0]).unwrap())
    });
    runtime.block_on(async {
        let wire = Wire::over(Socket::of(tokio::net::TcpStream::connect(address).await.unwrap()), ());
        keeper.spawn(wire.watch());
        settled().await;
        let by = Instant::now() + BLOCKED / 4;
        let key = get("k");
        let block = move || {
            blocking.send(()).unwrap();
            std::thread::sleep(BLOCKED);
        };
        match asking {
            Asking::Spawned => {
                let asking = tokio::spawn(async move { wire.until(Some(until(by))).send(&key).await });
                settled().await;
                block();
                asking.await.unwrap()
            }
            Asking::Root => {
                let blocking = async {
                    settled().await;
                    block();
                };
                join(wire.until(Some(until(by))).send(&key), blocking).await.0
            }
            Asking::Itself => {
                let asking = async move {
                    let mut reply = wire.until(Some(until(by))).send(&key);
                    assert!(futures_util::poll!(&mut reply).is_pending());
                    block();
                    reply.await
                };
                tokio::spawn(asking).await.unwrap()
            }
        }
    })
}

#[test]
fn a_reply_that_came_while_the_thread_was_blocked_is_read_before_it_is_given_up() {
    for asking in [Asking::Spawned, Asking::Root, Asking::Itself] {
        for (bug, is_read) in [(None, true), (Some(Mutant::OverdueBelieved), false)] {
            let _seeded = Seeded::begin(bug);
            let reply = read_late(asking);
            assert_eq!(reply.is_ok(), is_read, "{asking:?}, {bug:?}: {reply:?}");
        }
    }
}
