//! Every shape of fn and every option, in a crate that allows no warning: the expansion must be as clean as the code around it.

#![deny(warnings, clippy::all, clippy::pedantic, rust_2018_idioms, unused, let_underscore_drop)]
#![deny(clippy::allow_attributes_without_reason, clippy::shadow_unrelated, clippy::unwrap_used)]
#![deny(unused_qualifications, unused_lifetimes, single_use_lifetimes, missing_debug_implementations)]

mod constants;
pub(crate) mod free_fns;
mod keys;
mod methods;
mod returned_futures;

use std::sync::LazyLock;

use lock_runtime::{LockError, LockKey, LockManager};

type Result<T, E = LockError> = std::result::Result<T, E>;

const PREFIX: &str = "shapes:const";
static LOCKS: LazyLock<LockManager> = LazyLock::new(LockManager::in_memory);

/// A key with marked fields.
#[derive(LockKey, Debug, Clone)]
pub(crate) struct Seat {
    #[lock_key]
    train: String,
    #[lock_key]
    number: u32,
    price: u64,
}

fn assert_send<T: Send>(value: T) -> T {
    value
}
