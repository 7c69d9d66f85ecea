//! What a call needs around it: a runtime of tokio that has timers, and I/O where a connection is made.
//!
//! Without them tokio panics at the first timer or socket, which may be the first busy lock. So each call that waits checks first, and
//! returns an error.

use std::cell::Cell;
use std::panic::catch_unwind;
use std::time::Duration;

use tokio::runtime::{self, Handle};

use crate::LockError;

thread_local! {
    /// The last runtime in which this thread found timers: comparing is cheaper than finding out.
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
    // tokio has no query for it, only this panic, which the program's panic hook reports as well, once for each call.
    if catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_err() {
        let reason = "it has no timers: call `enable_time` or `enable_all` on the builder of this tokio runtime";
        return Err(LockError::setting("runtime", reason));
    }
    WITH_TIMERS.set(here);
    Ok(())
}
