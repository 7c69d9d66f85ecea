//! Locked fns in a crate of edition 2021: they keep the lints, the edition and the coverage of the fns as written.
//!
//! The compiler and clippy check the lints: each fn here expects those that it has without a lock, and an unfulfilled expectation is a
//! warning. The rest is in `tests/`.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use lock_runtime::{cache_lock, LockError};

/// The names of the dropped values, in order.
pub type Dropped = Mutex<Vec<&'static str>>;

/// Records its drop.
#[derive(Debug)]
pub struct Noted<'a>(&'static str, &'a Dropped);

impl Noted<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}

/// Temporaries of the last expression are dropped after the variables in edition 2021, and before them since edition 2024.
#[must_use]
pub fn without_a_lock(dropped: &Dropped) -> usize {
    let _local = Noted("variable", dropped);
    Noted("made last", dropped).len()
}

/// [`without_a_lock`] as a locked async fn.
#[expect(clippy::missing_errors_doc, reason = "the lint must fire for a locked fn, too")]
#[cache_lock(prefix = "edition", key = "all")]
pub async fn an_async_fn(dropped: &Dropped) -> Result<usize, LockError> {
    let _local = Noted("variable", dropped);
    Ok(Noted("made last", dropped).len())
}

/// [`without_a_lock`] as a locked fn that is not async.
#[expect(clippy::missing_errors_doc, reason = "the lint must fire for a locked fn, too")]
#[cache_lock(prefix = "edition", key = "all")]
pub fn a_blocking_fn(dropped: &Dropped) -> Result<usize, LockError> {
    let _local = Noted("variable", dropped);
    Ok(Noted("made last", dropped).len())
}

/// [`without_a_lock`] as a locked fn whose body is one async block.
#[expect(clippy::missing_errors_doc, reason = "the lint must fire for a locked fn, too")]
#[cache_lock(prefix = "edition", key = "all")]
pub fn one_async_block(dropped: &Dropped) -> impl Future<Output = Result<usize, LockError>> + '_ {
    async move {
        let _local = Noted("variable", dropped);
        Ok(Noted("made last", dropped).len())
    }
}

/// [`without_a_lock`] as a locked fn that works before it returns a future.
#[expect(clippy::missing_errors_doc, reason = "the lint must fire for a locked fn, too")]
#[cache_lock(prefix = "edition", key = "all")]
pub fn work_before_a_future(dropped: &Dropped) -> impl Future<Output = Result<usize, LockError>> + '_ {
    let _local = Noted("variable", dropped);
    std::future::ready(Ok(Noted("made last", dropped).len()))
}

/// Boxes the async fn, which makes the compiler generate its code.
#[must_use]
pub fn boxed(dropped: &Dropped) -> Pin<Box<dyn Future<Output = Result<usize, LockError>> + '_>> {
    Box::pin(an_async_fn(dropped))
}

#[expect(dead_code, reason = "nobody calls it")]
#[cache_lock(prefix = "lints", key = id)]
async fn that_nobody_calls(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[expect(dead_code, reason = "nobody calls it")]
#[cache_lock(prefix = "lints", key = id)]
fn that_nobody_calls_on_a_thread(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

/// Adds.
#[expect(clippy::must_use_candidate, reason = "the lint must fire for a locked fn, too")]
#[cache_lock(prefix = "lints", key = id, on_fail = 0)]
pub fn that_returns_a_number(id: u64) -> u64 {
    id + 1
}

/// Adds.
#[expect(clippy::too_many_arguments, reason = "the lint must fire for a locked fn, too")]
#[cache_lock(prefix = "lints", key = first, on_fail = 0)]
pub async fn with_many_arguments(
    first: u64,
    second: u64,
    third: u64,
    fourth: u64,
    fifth: u64,
    sixth: u64,
    seventh: u64,
    eighth: u64,
) -> u64 {
    first + second + third + fourth + fifth + sixth + seventh + eighth
}

#[expect(missing_docs, reason = "they are missing")]
#[cache_lock(prefix = "lints", key = "all", on_fail = ())]
pub async fn without_docs() {}

/// Asserts.
#[expect(clippy::missing_panics_doc, reason = "the lint must fire for a locked fn, too")]
#[cache_lock(prefix = "lints", key = id, on_fail = ())]
pub async fn that_panics(id: u64) {
    assert!(id > 0);
}

/// Has the lint attributes on the arguments.
#[expect(clippy::missing_errors_doc, reason = "the lint must fire for a locked fn, too")]
#[cache_lock(prefix = "lints", key = id)]
pub async fn with_unused_arguments(
    id: u64,
    #[expect(unused_variables, reason = "nobody uses it")] user: u64,
    #[cfg_attr(all(), expect(unused, reason = "nobody uses it"))] name: &str,
    #[expect(unused_variables, reason = "nobody uses one of them")] (from, to): (u64, u64),
    #[allow(unused, reason = "nobody uses it")] amount: u64,
) -> Result<u64, LockError> {
    Ok(to)
}

/// Has the lint attribute on the fn.
#[expect(clippy::missing_errors_doc, reason = "the lint must fire for a locked fn, too")]
#[cfg_attr(all(), expect(unused_variables, reason = "nobody uses it"))]
#[cache_lock(prefix = "lints", key = id)]
pub fn with_an_unused_argument(id: u64, user: u64) -> Result<(), LockError> {
    Ok(())
}

mod private {
    #[expect(unreachable_pub, dead_code, reason = "nobody reaches it")]
    #[lock_runtime::cache_lock(prefix = "lints", key = "all", on_fail = ())]
    pub async fn that_is_not_public() {}
}
