//! [`Spans`]: records the locks' `tracing` spans, and which of them are entered.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Every span of this process. There is one list per process, because any thread may create spans.
#[derive(Clone, Debug, Default)]
pub struct Spans(Arc<Mutex<Vec<Span>>>);

/// A span and its state.
#[derive(Clone, Debug, Default)]
pub struct Span {
    /// The name.
    pub name: String,
    /// The fields, as text.
    pub fields: BTreeMap<String, String>,
    /// How often it was entered.
    pub entered: usize,
    /// The number of threads that are inside now.
    pub inside: usize,
    /// Whether the last handle was dropped.
    pub is_closed: bool,
    handles: usize,
}

impl Span {
    /// The text of a field; empty if it was not recorded.
    #[must_use]
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

impl Spans {
    /// Installs the subscriber, unless it is installed already.
    #[must_use]
    pub fn of_this_process() -> Self {
        static SPANS: OnceLock<Spans> = OnceLock::new();
        let spans = SPANS.get_or_init(|| {
            let spans = Self::default();
            tracing::subscriber::set_global_default(spans.clone()).expect("another subscriber is installed");
            spans
        });
        spans.clone()
    }

    /// The spans of this name, oldest first.
    #[must_use]
    pub fn named(&self, name: &str) -> Vec<Span> {
        self.change(|spans| spans.iter().filter(|span| span.name == name).cloned().collect())
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Span>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change_span(&self, id: &Id, change: impl FnOnce(&mut Span)) {
        let place = usize::try_from(id.into_u64() - 1).expect("a place in the list");
        self.change(|spans| spans.get_mut(place).map(change));
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("lock_runtime")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut span = Span { name: attributes.metadata().name().to_owned(), handles: 1, ..Span::default() };
        attributes.record(&mut span);
        let count = self.change(|spans| {
            spans.push(span);
            spans.len()
        });
        Id::from_u64(count as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        self.change_span(id, |span| values.record(span));
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.change_span(id, |span| span.handles += 1);
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        self.change_span(&id, |span| {
            span.handles -= 1;
            span.is_closed = span.handles == 0;
        });
        true
    }

    fn enter(&self, id: &Id) {
        self.change_span(id, |span| {
            span.entered += 1;
            span.inside += 1;
        });
    }

    fn exit(&self, id: &Id) {
        self.change_span(id, |span| span.inside -= 1);
    }

    fn event(&self, _: &Event<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}
}

impl Visit for Span {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}
