//! [`Channel`]: what a connection hears of what the server tells a process.

use super::Link;

/// A channel of one process.
#[derive(Clone, Debug)]
pub(crate) enum Channel {
    /// All that concerns the locks of the process.
    OfCallers(String),
    /// What concerns leases that may linger (rule L9): nobody else of the process may be awake to hear it.
    OfKeeper(String),
}

impl Channel {
    pub(crate) fn of_callers(process: &str) -> Self {
        Self::OfCallers(process.to_owned())
    }

    pub(crate) fn of_keeper(process: &str) -> Self {
        Self::OfKeeper(process.to_owned())
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::OfCallers(process) => format!("cache_lock:{process}"),
            Self::OfKeeper(process) => format!("cache_lock:{process}:keeper"),
        }
    }

    pub(in super::super) fn is_of_callers(&self) -> bool {
        matches!(self, Self::OfCallers(_))
    }
}

impl Link {
    /// Whether tasks send on this connection, and not the keeper.
    pub(super) fn is_of_callers(&self) -> bool {
        self.channel.as_ref().is_some_and(Channel::is_of_callers)
    }
}
