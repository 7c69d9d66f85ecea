//! A distributed lock on Redis as one attribute on an async fn.
//!
//! (crate docs follow)

pub use lock_macros::{LockKey, cache_lock};

mod builder;
mod clock;
mod error;
mod fencing;
mod guard;
mod key;
mod local;
mod manager;
mod request;
mod scope;

#[doc(hidden)]
pub mod __private;

pub use builder::Builder;
pub use error::{BackendError, LockError};
pub use fencing::FencingToken;
pub use guard::LockGuard;
pub use key::{InvalidKey, LockKey, MAX_NAME_BYTES, NameParts};
pub use manager::LockManager;
pub use request::{LockRequest, OnLost};
