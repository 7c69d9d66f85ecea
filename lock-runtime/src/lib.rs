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
//! | the newest takes the lock from its holder | [`on_busy`](LockRequest::on_busy), `on_busy = "replace"` |
//! | a hold that ends in time | [`max_hold`](LockRequest::max_hold) |
//! | a hot key without a round trip | [`linger`](LockRequest::linger) |
//! | plain threads | [`run_blocking`](LockRequest::run_blocking), [`acquire_blocking`](LockRequest::acquire_blocking) |
//! | a refusal of late writers | [`FencingToken`](FencingToken) |
//! | one server, Sentinel, Cluster, a quorum, memory | [`Builder::url`](Builder::url), [`Builder::quorum`](Builder::quorum) |
//! | who has a lock, and taking it away | [`inspect`](LockManager::inspect), [`force_release`](LockManager::force_release) |
//! | what can be a key, and what can go wrong | [`LockKey`], [`LockError`] |
//! | five minutes to the first lock, how to choose, what is promised, what to do at 3 a.m. | the [`guide`] |

pub use lock_macros::{LockKey, cache_lock};
/// The library for TLS whose [`ClientConfig`](rustls::ClientConfig) [`Builder::tls`] takes.
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use lock_wire::rustls;
/// The client library whose [`Client`](redis::Client) [`Builder::client`] takes.
pub use redis;

#[macro_use]
mod mutants;

// Of the client, which needs them, too.
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
// In the documentation alone: its snippets are tests of the package `guide`.
#[cfg(all(doc, not(doctest)))]
pub mod guide {
    //! The guide, in the order in which one reads it, and the reference pages.
    //!
    //! To begin with: [five minutes](start) from nothing to a locked service. To choose by: [keys, timeouts and leases](choosing),
    //! [modes], [where locks can live](topologies), [what is promised](guarantees). At three in the morning: the [runbook].

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
        linger: "docs/guide/linger.md"
        errors: "docs/guide/errors.md"
        testing: "docs/guide/testing.md"
        operating: "docs/guide/operating.md"
        connections: "docs/guide/connections.md"
        versions: "docs/guide/versions.md"
        moving: "docs/guide/moving.md"
        questions: "docs/guide/questions.md"
        guarantees: "docs/guarantees.md"
        topologies: "docs/topologies.md"
        runbook: "docs/runbook.md"
        telemetry: "docs/telemetry.md"
        lockctl: "docs/lockctl.md"
        faults: "docs/faults.md"
        track_record: "docs/track-record.md"
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
pub use request::LockRequest;
pub use settings::{OnBusy, OnLost};
pub use ticket::LockTicket;
