//! Lends one runtime's clock to polls inside another runtime.
//!
//! A waiting thread polls inside the keepers' runtime, which drives its timers. Locks in this process use the time of the runtime that the
//! thread belongs to: a test may have paused that clock or advanced it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;

use tokio::runtime::Handle;
use tokio::time::Instant;

thread_local! {
    /// Whether a clock is lent: on most threads none is, and this flag is all they read.
    static IS_LENT: Cell<bool> = const { Cell::new(false) };
    static OWNER: RefCell<Option<Handle>> = const { RefCell::new(None) };
}

/// Whether moments use a different clock than the timers here.
#[inline]
pub(super) fn is_lent() -> bool {
    IS_LENT.get()
}

/// tokio's clock for a [`Moment`](super::Moment): the one of the two runtimes that is further ahead. The moment's other two clocks still
/// count, so a lease ends in time; if it began by the clock that lags, it would have ended long ago.
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

/// The runtime that lends its clock here.
#[inline]
pub fn owner() -> Option<Handle> {
    if is_lent() { OWNER.with_borrow(Clone::clone) } else { None }
}

/// Polls `future` with the clock of `owner`, if there is an owner.
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

/// Restores the former clock when the poll ends, even by a panic.
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
