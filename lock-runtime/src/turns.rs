//! [`Turns`]: which of several joined calls is inside of the body around them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Joined calls that enter the same hold again take turns. The end of a turn wakes all that wait, and the first one that is polled has the
/// next turn: a fair mutex would hand it to a call that may not be polled.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    is_taken: AtomicBool,
    ended: Notify,
}

/// A call's turn, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Turns>);

impl Turns {
    pub(crate) fn try_take(self: &Arc<Self>) -> Option<Turn> {
        (!self.is_taken.swap(true, Ordering::Acquire)).then(|| Turn(Arc::clone(self)))
    }

    pub(crate) async fn take(self: &Arc<Self>) -> Turn {
        loop {
            // It counts from here on, so it misses no turn that ends after the look.
            let ended = self.ended.notified();
            if let Some(turn) = self.try_take() {
                return turn;
            }
            ended.await;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Release);
        self.0.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_call_that_is_not_polled_keeps_no_turn() {
        let turns = Arc::new(Turns::default());
        let first = turns.try_take().unwrap();
        let mut unpolled = pin!(turns.take());
        assert!(unpolled.as_mut().now_or_never().is_none());
        assert!(turns.take().now_or_never().is_none());
        drop(first);
        drop(turns.take().now_or_never().expect("no call has its turn"));
        assert!(unpolled.now_or_never().is_some());
    }
}
