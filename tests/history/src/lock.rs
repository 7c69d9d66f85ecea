//! [`Lock`]: the interface of a lock that can be checked.

use std::path::PathBuf;
use std::time::Duration;

use super::event::{How, Wanted};

/// Where the locks are, and which process uses them.
#[derive(Clone, Debug)]
pub struct Place {
    /// The server's URL.
    pub url: String,
    /// The name of this process. If its tokens end in `@` and this name, the checks can recognise them in the server.
    pub label: String,
    /// The file with the password of the user `worker`, which changes every few seconds. `None`: there is no login.
    pub password: Option<PathBuf>,
}

/// Why a call failed.
#[derive(Clone, Debug)]
pub enum Failure {
    /// Somebody else holds the lock.
    Busy(String),
    /// The server could not be reached.
    Unreachable(String),
    /// The hold had ended before.
    Lost(String),
    /// Anything else.
    Other(String),
    /// This lock can't do that.
    Unsupported,
}

impl Failure {
    /// The outcome for the history.
    #[must_use]
    pub fn how(&self) -> How {
        match self {
            Self::Busy(_) => How::Busy,
            Self::Unreachable(_) => How::Unreachable,
            Self::Lost(_) => How::Lost,
            Self::Other(_) | Self::Unsupported => How::Failed,
        }
    }

    /// The error's text.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Busy(text) | Self::Unreachable(text) | Self::Lost(text) | Self::Other(text) => text,
            Self::Unsupported => "unsupported",
        }
    }
}

/// A process's client for the locks, shared by its tasks.
///
/// The lock of `key` must be the string at this key in Redis, so that the checks can compare the server's own record.
pub trait Lock: Sized + Send + Sync + 'static {
    /// A held lock.
    type Hold: Hold;
    /// The commands that it uses, in capitals; faults on the wire hit these.
    const COMMANDS: &'static [&'static str] = &["SET", "EVALSHA", "EVAL"];
    /// Whether dropping a hold, or the future of an acquire, releases the lock. Only then the soak drops them.
    const DROPS: bool = false;
    /// Whether errors distinguish a busy lock from an unreachable server, and losses are reported.
    const TELLS: bool = false;

    /// Whether processes get a lock in the order of their asks, except for one streak of hand-overs.
    const QUEUES: bool = false;

    /// Connects.
    fn connect(place: &Place) -> impl Future<Output = Result<Self, Failure>> + Send;

    /// Waits for the lock until `wanted.timeout()` is over.
    fn acquire(&self, key: &str, wanted: &Wanted) -> impl Future<Output = Result<Self::Hold, Failure>> + Send;

    /// Waits for the locks of `keys`, all or none.
    fn acquire_all(
        &self,
        _keys: &[String],
        _wanted: &Wanted,
    ) -> impl Future<Output = Result<Self::Hold, Failure>> + Send {
        std::future::ready(Err(Failure::Unsupported))
    }

    /// Releases everything.
    fn close(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// A held lock.
pub trait Hold: Send + Sync + 'static {
    /// How long the caller may still rely on it; `None` if the algorithm has no deadline.
    fn remaining(&self) -> Option<Duration>;

    /// Its fencing token.
    fn fence(&self) -> Option<u64> {
        None
    }

    /// The fencing token of one lock of several: the lock of this key.
    fn fence_of(&self, _key: &str) -> Option<u64> {
        self.fence()
    }

    /// Extends it to `lease` from now.
    fn extend(&self, _lease: Duration) -> impl Future<Output = Result<(), Failure>> + Send {
        std::future::ready(Err(Failure::Unsupported))
    }

    /// Releases it.
    fn release(self) -> impl Future<Output = Result<(), Failure>> + Send;
}
