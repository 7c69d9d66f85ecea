//! [`Journal`]: all events of a world in one order, on whichever server they happen.

use history::Event;
use history::event::{Change, What};

use super::majority::Majority;
use super::time;

#[derive(Default)]
pub(super) struct Journal {
    events: Vec<Event>,
    /// The time of the last event.
    noted: u64,
    /// The owners of a quorum's locks; `None` if one server decides.
    majority: Option<Majority>,
}

impl Journal {
    pub(super) fn note(&mut self, process: &str, task: u32, what: What) {
        let t = self.next_instant();
        self.noted = t;
        self.events.push(Event { t, process: process.to_owned(), task, what });
    }

    /// Later events get later times, even within one instant of virtual time.
    pub(super) fn next_instant(&self) -> u64 {
        time::now().unwrap_or_default().max(self.noted + 1)
    }

    pub(super) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// From now on this many servers decide together who owns a lock.
    pub(super) fn count_servers(&mut self, servers: usize) {
        self.majority = (servers > 1).then(|| Majority::of(servers));
    }

    /// Records a change of a lock on a server, if it decides who owns the lock.
    pub(super) fn note_change(&mut self, server: usize, key: String, to: Change) {
        let since = time::now().unwrap_or_default();
        let to = match &mut self.majority {
            Some(majority) => majority.count(server, &key, to, since),
            None => Some(to),
        };
        if let Some(to) = to {
            self.note("server", 0, What::Changed { since, key, to });
        }
    }
}
