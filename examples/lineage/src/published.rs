//! The published locks, one file each, ported command by command to plain redis commands.
//!
//! Two things differ from the articles, for all of them. Leases are short, so seconds became milliseconds (`PEXPIRE` for
//! `EXPIRE`). And every value ends in `@` and its process's name, which the checker reads and the algorithms do not.
//! If a version tries only once, its caller asks again, as the articles' callers do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use history::Place;
use tests::wire::Wire;

pub(crate) mod a_annotation;
pub(crate) mod b_user_id;
pub(crate) mod c_daemon;
pub(crate) mod d1_setnx;
pub(crate) mod d2_expiry;
pub(crate) mod d3_client_id;
pub(crate) mod d4_script;
pub(crate) mod d5_retry;
pub(crate) mod e_timestamp;

/// One process's connection to the server, shared by its holds.
pub(crate) struct Session {
    wire: Wire,
    label: String,
    last: AtomicU64,
}

impl Session {
    fn new(place: &Place) -> Arc<Self> {
        Arc::new(Self { wire: Wire::new(&place.url), label: place.label.clone(), last: AtomicU64::new(0) })
    }

    /// The article's value for the key, with this process's name.
    fn signed(&self, value: impl std::fmt::Display) -> String {
        format!("{value}@{}", self.label)
    }

    /// A unique value.
    fn unique(&self) -> String {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        self.signed(format_args!("{:016x}-{number}", fastrand::u64(..)))
    }

    /// A hold of `key` under `value`.
    fn taken(self: &Arc<Self>, key: &str, value: String) -> Taken {
        Taken { session: Arc::clone(self), key: key.to_owned(), value }
    }
}

/// What every hold has.
pub(crate) struct Taken {
    session: Arc<Session>,
    key: String,
    value: String,
}

/// `GET`, and `DEL` if that is its own value.
const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";
