//! A distributed lock on Redis as one attribute on an async fn.
//!
//! (crate docs follow)

pub use lock_macros::{LockKey, cache_lock};

mod builder;
mod clock;
mod engine;
mod error;
mod fencing;
mod guard;
mod keeper;
mod key;
mod local;
mod manager;
mod observe;
mod request;
mod scope;
mod store;
mod token;

#[doc(hidden)]
pub mod __private;

pub use builder::Builder;
pub use error::{BackendError, LockError};
pub use fencing::FencingToken;
pub use guard::LockGuard;
pub use key::{InvalidKey, LockKey, MAX_NAME_BYTES, NameParts};
pub use manager::LockManager;
pub use request::{LockRequest, OnLost};
