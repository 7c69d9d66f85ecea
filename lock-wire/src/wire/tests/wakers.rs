//! A waker may hold the last reference to its task, as in the thread pool of `futures`. Dropping the waker then ends the task and the
//! futures inside, which call back into the connection.

use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Waker};

use futures_util::task::{ArcWake, waker};

use super::*;
use crate::mutants::{Mutant, Seeded};

/// A task that its wakers own. When it is dropped, it records whether another thread has to wait for the connection.
struct Owned {
    wire: Wire,
    is_locked: Sender<bool>,
}

impl Owned {
    fn waker(wire: &Wire) -> (Waker, std::sync::mpsc::Receiver<bool>) {
        let (is_locked, ended) = channel();
        (waker(Arc::new(Self { wire: wire.clone(), is_locked })), ended)
    }
}

impl ArcWake for Owned {
    fn wake_by_ref(_: &Arc<Self>) {}
}

impl Drop for Owned {
    fn drop(&mut self) {
        let (done, is_done) = channel();
        let wire = self.wire.clone();
        std::thread::spawn(move || done.send(wire.heard()));
        let _ = self.is_locked.send(is_done.recv_timeout(Duration::from_millis(500)).is_err());
    }
}

#[tokio::test]
async fn a_task_whose_future_moves_to_another_or_is_dropped_ends_without_the_lock_of_the_connection() {
    for moves in [true, false] {
        for bug in [None, Some(Mutant::DropsUnderMutex)] {
            let _seeded = Seeded::begin(bug);
            let (wire, _far, _) = connected().await;
            let command = get("k");
            let mut sent = Box::pin(wire.until(None).send(&command));
            let (of_task, ended) = Owned::waker(&wire);
            assert!(sent.as_mut().poll(&mut Context::from_waker(&of_task)).is_pending());
            drop(of_task);
            assert!(ended.try_recv().is_err(), "the connection still refers to it");
            if moves {
                assert!(futures_util::poll!(&mut sent).is_pending());
            } else {
                drop(sent);
            }
            assert_eq!(ended.try_recv(), Ok(bug.is_some()), "{moves}");
        }
    }
}

#[tokio::test]
async fn a_task_ends_without_the_lock_of_the_connection_when_it_was_woken_by_a_reply_or_by_the_end() {
    for is_answered in [true, false] {
        let (wire, mut far, _) = connected().await;
        let command = get("k");
        let mut sent = Box::pin(wire.until(None).send(&command));
        let (of_task, ended) = Owned::waker(&wire);
        assert!(sent.as_mut().poll(&mut Context::from_waker(&of_task)).is_pending());
        drop(of_task);
        if is_answered {
            far.write_all(b":1\r\n").await.unwrap();
        } else {
            drop(far);
        }
        settled().await;
        assert_eq!(ended.try_recv(), Ok(false));
    }
}

#[tokio::test]
async fn a_task_that_waits_for_room_ends_without_the_lock_of_the_connection() {
    let (wire, _far, _) = connected().await;
    wire.0.0.lock().most = 0;
    let mut waiting = Box::pin(wire.room());
    let (of_task, ended) = Owned::waker(&wire);
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&of_task)).is_pending());
    drop(of_task);
    drop(waiting);
    assert_eq!(ended.try_recv(), Ok(false));
}
