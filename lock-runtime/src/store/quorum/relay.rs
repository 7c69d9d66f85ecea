//! [`Relay`]: what the servers of a quorum report on their own, on its way to the manager.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::store::{Events, Pushed, Traffic};

/// Passes on the events of one server, and marks its grants as a part of the lock.
pub(super) struct Relay(Weak<dyn Events>);

impl Relay {
    pub(super) fn new(events: Weak<dyn Events>) -> Self {
        Self(events)
    }
}

impl Events for Relay {
    fn on_grant(&self, key: &str, pushed: &Pushed) {
        if let Some(events) = self.0.upgrade() {
            events.on_grant(key, &Pushed { partial: true, ..pushed.clone() });
        }
    }

    fn on_contention(&self, key: &str) {
        if let Some(events) = self.0.upgrade() {
            events.on_contention(key);
        }
    }

    fn on_alarm(&self, key: Option<&str>) {
        if let Some(events) = self.0.upgrade() {
            events.on_alarm(key);
        }
    }

    fn on_interruption(&self, affects: &dyn Fn(&str) -> bool) {
        if let Some(events) = self.0.upgrade() {
            events.on_interruption(affects);
        }
    }

    fn on_reconnect(&self, server: &str, of_callers: bool, away: Duration) {
        if let Some(events) = self.0.upgrade() {
            events.on_reconnect(server, of_callers, away);
        }
    }

    fn traffic(&self) -> Arc<Traffic> {
        self.0.upgrade().map(|events| events.traffic()).unwrap_or_default()
    }
}
