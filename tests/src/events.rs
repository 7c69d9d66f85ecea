//! [`Events`]: records the locks' `tracing` events as text.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Every event of this process, as `LEVEL field=value …`. There is one list per process, because any thread may emit events.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<Mutex<Vec<String>>>);

impl Events {
    /// Installs the subscriber, unless it is installed already.
    #[must_use]
    pub fn of_this_process() -> Self {
        static EVENTS: OnceLock<Events> = OnceLock::new();
        let events = EVENTS.get_or_init(|| {
            let events = Self::default();
            tracing::subscriber::set_global_default(Listener(events.clone())).expect("another subscriber is installed");
            events
        });
        events.clone()
    }

    /// The events that contain all of `words`.
    #[must_use]
    pub fn with(&self, words: &[&str]) -> Vec<String> {
        let events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.iter().filter(|event| words.iter().all(|word| event.contains(word))).cloned().collect()
    }
}

struct Listener(Events);

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("lock_runtime")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").expect("a string takes everything");
    }
}
