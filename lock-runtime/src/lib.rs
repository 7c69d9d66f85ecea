//! A distributed lock on Redis as one attribute on an async fn. Bodies under one key run one at a time across tasks,
//! processes and hosts; only a server that forgets (restarted without its data, evicting, flushed, failed over) or whose
//! clock is stepped forward can let a second one in, and the [fencing token](FencingToken) is for that.
//!
//! ```no_run
//! use lock_runtime::{LockError, LockManager, cache_lock};
//!
//! #[cache_lock(prefix = "seckill", key = commodity_id, timeout_ms = 2000, expire_s = 1000)]
//! async fn sec_kill(user: &str, commodity_id: u64) -> Result<u64, LockError> {
//!     // Nobody else is here for this commodity: not in this process, not on another host.
//!     Ok(commodity_id)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let locks = LockManager::connect("redis://127.0.0.1:6379").await?;
//! locks.install()?;
//! sec_kill("ada", 7).await?;
//! locks.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # When not to use a lock
//!
//! Inside one process `tokio::sync::Mutex` will do. For the safety of database rows use the database: a transaction, a
//! unique index, and this lock at most to keep the crowd off. What has to hold while Redis fails over needs a consensus
//! system.
//!
//! # What is promised
//!
//! A lock with a lease can't stop a holder that is paused after its last look at the clock, and can't remember what its
//! server forgot; against both there is the [fencing token](FencingToken). Apart from that holds of one key never overlap, the
//! deadline is looked at before every poll of a body, a crashed holder delays others by its lease and a second at
//! most, and a future that is dropped anywhere leaves nothing behind. The file `docs/guarantees.md` of the repository has
//! the promises in full, each with its tests.
//!
//! # Where to go
//!
//! [`macro@cache_lock`] has the attribute's grammar, [`LockManager`] the way in, [`LockRequest`] the same without the
//! attribute, [`LockKey`] what can be a key, and [`LockError`] what can go wrong.

pub use lock_macros::{LockKey, cache_lock};

#[macro_use]
mod mutants;

mod builder;
mod clock;
mod engine;
mod error;
mod fencing;
mod fork;
mod guard;
mod keeper;
mod key;
mod local;
mod manager;
mod observe;
mod place;
mod request;
mod scope;
#[cfg(test)]
mod simulation;
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
