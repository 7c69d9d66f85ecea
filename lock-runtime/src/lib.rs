#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]
//!
//! # What there is
//!
//! | | |
//! |---|---|
//! | the attribute, on fns, traits and impl blocks, async or not | [`cache_lock`](macro@cache_lock) |
//! | several keys, all or none | [`lock_all`](LockManager::lock_all), `keys = […]` |
//! | readers and writers | [`read`](LockRequest::read), `mode = "read"` |
//! | at most N at a time | [`permits`](LockRequest::permits) |
//! | a job once per period | [`at_least`](LockRequest::at_least) |
//! | a hold that another process takes over | [`into_ticket`](LockGuard::into_ticket), [`adopt`](LockManager::adopt) |
//! | the newest request takes the lock from its holder | [`on_busy`](LockRequest::on_busy), `on_busy = "replace"` |
//! | a limit for the time of a hold | [`max_hold`](LockRequest::max_hold) |
//! | a delay after a dropped body | [`lock_delay`](LockRequest::lock_delay) |
//! | a note on who holds it, and why | [`note`](LockRequest::note), [`LockInfo`] |
//! | a hot key without a round trip | [`linger`](LockRequest::linger) |
//! | plain threads | [`run_blocking`](LockRequest::run_blocking), [`acquire_blocking`](LockRequest::acquire_blocking) |
//! | a token that lets a resource refuse late writers | [`FencingToken`](FencingToken) |
//! | one server, Sentinel, Cluster, a quorum, memory | [`Builder::url`](Builder::url), [`Builder::quorum`](Builder::quorum) |
//! | who holds a lock, and how to take it away | [`inspect`](LockManager::inspect), [`force_release`](LockManager::force_release) |
//! | what can be a key, and what can go wrong | [`LockKey`], [`LockError`] |
//! | five minutes to the first lock, how to choose, what is promised, what to do at 3 a.m. | the [`guide`] |

pub use lock_macros::{LockKey, cache_lock};
/// The TLS library: [`Builder::tls`] takes its [`ClientConfig`](rustls::ClientConfig).
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use lock_wire::rustls;
/// The client library: [`Builder::client`] takes its [`Client`](redis::Client).
pub use redis;

#[macro_use]
mod mutants;

// Shared with the client.
use lock_wire::{clock, fork, mutex};

mod address;
mod blocking;
mod builder;
mod engine;
mod entry;
mod error;
mod fencing;
#[cfg(test)]
mod fuzz;
mod guard;
// Only in the documentation: the package `guide` tests its snippets.
#[cfg(all(doc, not(doctest)))]
pub mod guide {
    //! The guide, in reading order, and the reference pages.
    //!
    //! To start: [five minutes](start) from nothing to a locked service. To choose: [keys, timeouts and leases](choosing), [modes], [where
    //! locks can live](topologies), [what is promised](guarantees). At three in the morning: the [runbook].

    macro_rules! pages {
        ($($name:ident: $path:literal)*) => {
            $(
                #[doc = lock_macros::__page!($path)]
                pub mod $name {}
            )*
        };
    }

    pages! {
        start: "docs/guide/start.md"
        choosing: "docs/guide/choosing.md"
        transactions: "docs/guide/transactions.md"
        modes: "docs/guide/modes.md"
        errors: "docs/guide/errors.md"
        testing: "docs/guide/testing.md"
        connections: "docs/guide/connections.md"
        versions: "docs/guide/versions.md"
        moving: "docs/guide/moving.md"
        others: "docs/guide/others.md"
        questions: "docs/guide/questions.md"
        guarantees: "docs/guarantees.md"
        fine_print: "docs/fine-print.md"
        topologies: "docs/topologies.md"
        runbook: "docs/runbook.md"
        telemetry: "docs/telemetry.md"
        lockctl: "docs/lockctl.md"
        faults: "docs/faults.md"
        why_not_small: "docs/why-not-small.md"
        report: "docs/report.md"
        protocol: "docs/protocol.md"
        performance: "docs/performance.md"
    }
}
mod held;
mod keep_alive;
mod keeper;
mod key;
mod local;
mod lock;
mod lock_info;
mod manager;
mod observe;
mod opaque;
mod options;
mod protocol;
mod request;
mod scope;
mod settings;
mod share;
#[cfg(test)]
mod simulation;
mod store;
mod surroundings;
#[cfg(feature = "testing")]
pub mod testing;
mod ticket;
mod timing;
mod token;
mod turns;

#[doc(hidden)]
pub mod __private;

pub use builder::Builder;
pub use error::{BackendError, ErrorKind, InvalidKey, LockError};
pub use fencing::FencingToken;
pub use guard::LockGuard;
pub use key::{LockKey, MAX_NAME_BYTES, NameParts};
pub use lock_info::{LockInfo, LockMode, LockStats};
pub use manager::LockManager;
#[doc(hidden)]
pub use manager::LockServer;
pub use protocol::WIRE_FORMAT;
pub use request::LockRequest;
pub use settings::{OnBusy, OnLost};
pub use ticket::LockTicket;
