//! [`Watch`]: ends the waits for overdue replies.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::time::{Instant, Sleep, sleep_until};

use super::{CALLED_AGAIN_AFTER, Ended, Shared};

/// One timer for all commands on a connection. It runs until the connection ends, or its last handle is gone.
///
/// A timer per command would have to be registered with the runtime and removed again, although most replies arrive in time. So the timer
/// stays as it is until it fires, and only then it is set to the next reply that is due. A command moves it only if its reply is due
/// earlier.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// What the tasks know of the [`Watch`] over their replies.
#[derive(Default)]
pub(super) struct Watched {
    waker: Option<Waker>,
    /// When the watch looks next.
    looks_at: Option<Instant>,
}

impl Watched {
    /// A reply is due by this instant.
    #[inline]
    pub(super) fn expect(&mut self, by: Instant) {
        if self.looks_at.is_none_or(|looks_at| by < looks_at) {
            mutant!(EarlierReplyUnwatched => if self.looks_at.is_some() {
                return;
            });
            self.looks_at = Some(by);
            self.wake();
        }
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

impl Watch {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), timer: None }
    }

    /// Ends the overdue waits. Returns when to look again, unless the connection has ended.
    fn look(&self, context: &Context<'_>) -> ControlFlow<(), Option<Instant>> {
        let mut to_wake = Vec::new();
        let mut state = self.shared.lock();
        if state.ended.is_some() || state.is_left {
            return ControlFlow::Break(());
        }
        let now = Instant::now();
        let mut next = state.places.end_overdue(now, &mut to_wake);
        let calls = state.call_waiting_again();
        if state.waiting > 0 {
            let again = now + CALLED_AGAIN_AFTER;
            next = Some(next.map_or(again, |next| next.min(again)));
        }
        state.watched = Watched { waker: Some(context.waker().clone()), looks_at: next };
        drop(state);
        to_wake.into_iter().for_each(Waker::wake);
        self.shared.call_for_room(calls);
        ControlFlow::Continue(next)
    }
}

impl Future for Watch {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let next = match self.look(context) {
                ControlFlow::Continue(Some(next)) => next,
                ControlFlow::Continue(None) => return Poll::Pending,
                ControlFlow::Break(()) => return Poll::Ready(()),
            };
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(next)));
            timer.as_mut().reset(next);
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Watch {
    /// Without a watch (its runtime ended, or a task's waker panicked) the connection ends. The next connection has its own.
    fn drop(&mut self) {
        if let Some(aftermath) = self.shared.end(&Ended::by_close()) {
            aftermath.carry_out();
        }
    }
}
