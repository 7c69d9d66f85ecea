//! [`Lock`]: what an algorithm has to offer to be judged.

use std::time::Duration;

use super::event::{How, Wanted};

/// Where a lock lives and who uses it.
#[derive(Clone, Debug)]
pub struct Place {
    /// The server's URL.
    pub url: String,
    /// The name of this process. A token that ends in `@` and this name can be told to be its own in the server.
    pub label: String,
}

/// Why a call did not do what was asked.
#[derive(Clone, Debug)]
pub enum Failure {
    /// Somebody else holds the lock.
    Busy(String),
    /// The server could not be asked.
    Unreachable(String),
    /// The hold had ended before.
    Lost(String),
    /// Anything else.
    Other(String),
    /// This lock can't do that.
    Unsupported,
}

impl Failure {
    /// As a history has it.
    #[must_use]
    pub fn how(&self) -> How {
        match self {
            Self::Busy(_) => How::Busy,
            Self::Unreachable(_) => How::Unreachable,
            Self::Lost(_) => How::Lost,
            Self::Other(_) | Self::Unsupported => How::Failed,
        }
    }

    /// In words.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Busy(text) | Self::Unreachable(text) | Self::Lost(text) | Self::Other(text) => text,
            Self::Unsupported => "unsupported",
        }
    }
}

/// One process's way to the locks, shared by its tasks.
///
/// The lock of `key` has to be the string at this very key in Redis, or the server's own record can't be compared.
pub trait Lock: Sized + Send + Sync + 'static {
    /// What a task has while it holds a lock.
    type Hold: Hold;
    /// Commands through which it acts, in capitals: these meet the faults of the wire.
    const COMMANDS: &'static [&'static str] = &["SET", "EVALSHA", "EVAL"];
    /// Whether dropping a hold, or the future of an acquire, releases what was granted. Only then are they dropped.
    const DROPS: bool = false;
    /// Whether errors tell a busy lock from a server that could not be asked, and losses are reported.
    const TELLS: bool = false;

    /// Whether processes get a lock in the order in which they came, one streak of hand-overs apart.
    const QUEUES: bool = false;

    /// Connects.
    fn connect(place: &Place) -> impl Future<Output = Result<Self, Failure>> + Send;

    /// Waits for the lock until `wanted.timeout()` is over.
    fn acquire(&self, key: &str, wanted: &Wanted) -> impl Future<Output = Result<Self::Hold, Failure>> + Send;

    /// Waits for all locks of `keys`, and has all of them or none.
    fn acquire_all(
        &self,
        _keys: &[String],
        _wanted: &Wanted,
    ) -> impl Future<Output = Result<Self::Hold, Failure>> + Send {
        std::future::ready(Err(Failure::Unsupported))
    }

    /// Gives everything back.
    fn close(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// A lock that is held.
pub trait Hold: Send + Sync + 'static {
    /// The time it may still be relied on; `None` when the algorithm knows no deadline.
    fn remaining(&self) -> Option<Duration>;

    /// Its fencing token.
    fn fence(&self) -> Option<u64> {
        None
    }

    /// The fencing token of one lock of several: the lock of this key.
    fn fence_of(&self, _key: &str) -> Option<u64> {
        self.fence()
    }

    /// Lengthens it to `lease` from now.
    fn extend(&self, _lease: Duration) -> impl Future<Output = Result<(), Failure>> + Send {
        std::future::ready(Err(Failure::Unsupported))
    }

    /// Gives it back.
    fn release(self) -> impl Future<Output = Result<(), Failure>> + Send;
}
