//! What a call needs around it: a runtime of tokio that has timers, and I/O where a connection is made.
//!
//! tokio panics without them, at the first timer or socket, which may be the first lock that is busy. So each call that waits looks
//! first, and is refused in words.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::{self, Handle};

use crate::LockError;

thread_local! {
    /// The runtime that this thread has found to have timers. It costs more to find out than to compare.
    static WITH_TIMERS: Cell<Option<runtime::Id>> = const { Cell::new(None) };
}

/// Refuses a call that is polled where nothing drives timers.
pub(crate) fn check() -> Result<(), LockError> {
    let Ok(runtime) = Handle::try_current() else {
        let reason = "there is none: call this inside of a tokio runtime, or use `run_blocking` and `acquire_blocking`, on plain \
            threads, with a manager of `connect_lazy`";
        return Err(LockError::setting("runtime", reason));
    };
    let here = Some(runtime.id());
    if WITH_TIMERS.get() == here {
        return Ok(());
    }
    // tokio has no question for it, only this panic, of which the program's panic hook tells as well. It comes once for each call.
    if catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_err() {
        let reason = "it has no timers: call `enable_time` or `enable_all` on the builder of this tokio runtime";
        return Err(LockError::setting("runtime", reason));
    }
    WITH_TIMERS.set(here);
    Ok(())
}

/// Waits for a new socket. On a runtime without I/O it fails as [`Unsupported`](io::ErrorKind::Unsupported), with what to do.
pub(crate) async fn socket<T>(opening: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let panic = match AssertUnwindSafe(opening).catch_unwind().await {
        Ok(outcome) => return outcome,
        Err(panic) => panic,
    };
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    if !text.is_some_and(|text| text.contains("enable_io")) {
        resume_unwind(panic);
    }
    let reason = "it needs I/O of the tokio runtime: call `enable_io` or `enable_all` on the builder of this runtime";
    Err(io::Error::new(io::ErrorKind::Unsupported, reason))
}
