//! The clock of one runtime in the polls of another.
//!
//! A thread that waits polls inside of the keepers' runtime, which drives its timers. Where the locks are in this process, their time is
//! that of the runtime that the thread belongs to: a test may have paused it, and let it run ahead.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;

use tokio::runtime::Handle;
use tokio::time::Instant;

thread_local! {
    /// Whether there is one: most threads have none, and ask nothing more.
    static IS_LENT: Cell<bool> = const { Cell::new(false) };
    static OWNER: RefCell<Option<Handle>> = const { RefCell::new(None) };
}

/// Whether the clock of moments is not that of the timers here.
#[inline]
pub(super) fn is_lent() -> bool {
    IS_LENT.get()
}

/// What tokio's clock says to a [`Moment`](super::Moment): that of the two runtimes which has run ahead. The other two clocks of a moment
/// still count, so a lease ends in time; by a clock that lags behind it would have ended long ago.
#[inline]
pub(super) fn now() -> Instant {
    let here = Instant::now();
    if !is_lent() {
        return here;
    }
    OWNER.with_borrow(|owner| {
        let _inside = owner.as_ref().map(Handle::enter);
        here.max(Instant::now())
    })
}

/// The runtime whose clock is lent here.
#[inline]
pub fn owner() -> Option<Handle> {
    if is_lent() { OWNER.with_borrow(Clone::clone) } else { None }
}

/// Polls `future` with the clock of `owner`, if there is one.
pub async fn with_clock_of<F: Future>(owner: Option<Handle>, future: F) -> F::Output {
    mutant!(ClockNotLent => return future.await);
    let Some(owner) = owner else { return future.await };
    let mut future = pin!(future);
    poll_fn(|context| {
        let _lent = Lent::begin(&owner);
        future.as_mut().poll(context)
    })
    .await
}

/// Ends with the poll, whatever the poll does.
struct Lent(Option<Handle>);

impl Lent {
    fn begin(owner: &Handle) -> Self {
        IS_LENT.set(true);
        Self(OWNER.replace(Some(owner.clone())))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        IS_LENT.set(self.0.is_some());
        OWNER.set(self.0.take());
    }
}
