//! [`Traffic`]: how much the connections of a manager have done.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::observe::metrics;

/// Counts for all connections of a manager. Each count stands beside a command, which costs much more.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    commands: AtomicU64,
    reconnects: AtomicU64,
}

impl Traffic {
    pub(crate) fn note_commands(&self, count: usize) {
        let count = count as u64;
        self.commands.fetch_add(count, Ordering::Relaxed);
        metrics::commands(count);
    }

    pub(crate) fn note_reconnect(&self) {
        self.reconnects.fetch_add(1, Ordering::Relaxed);
        metrics::reconnected();
    }

    /// How many commands were sent.
    pub(crate) fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// How many times a connection was made again.
    pub(crate) fn reconnects(&self) -> u64 {
        self.reconnects.load(Ordering::Relaxed)
    }
}
