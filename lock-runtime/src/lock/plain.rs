//! Tests: a world in which nothing goes wrong, unless a test says so.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use super::Env;
use crate::clock::Moment;
use crate::protocol::{Connection, StoreKind};
use crate::settings::Settings;
use crate::share::{Share, SharedLeases};
use crate::token::{Process, Token};

/// One server.
#[derive(Debug)]
pub(super) struct Plain {
    settings: Settings,
    key: Arc<str>,
    process: Process,
    share: Option<Share>,
    distance: Duration,
    kind: &'static StoreKind,
    /// The time, when it passes only as a test says. `None`: as the clocks say.
    time: Option<Cell<Moment>>,
    pub(super) is_cut_off: Cell<bool>,
}

impl Plain {
    pub(super) fn new() -> Self {
        Self {
            settings: Settings::default(),
            key: "p:k".into(),
            process: Process::new("ada"),
            share: None,
            distance: Duration::ZERO,
            kind: &StoreKind::SERVER,
            time: None,
            is_cut_off: Cell::new(false),
        }
    }

    /// For leases of this share, and with a time that stands still.
    pub(super) fn still(share: Option<Share>) -> Self {
        Self { share, time: Some(Cell::new(Moment::now())), ..Self::new() }
    }

    /// With a store that has no queue.
    pub(super) fn polled(self) -> Self {
        Self { kind: &StoreKind { queues: false, ..StoreKind::SERVER }, ..self }
    }

    pub(super) fn let_pass(&self, span: Duration) {
        let time = self.time.as_ref().expect("a time that stands still");
        time.set(time.get().later(span));
    }
}

impl Env for Plain {
    fn now(&self) -> Moment {
        self.time.as_ref().map_or_else(Moment::now, Cell::get)
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn key(&self) -> &Arc<str> {
        &self.key
    }

    fn share(&self) -> Option<Share> {
        self.share
    }

    fn leases(&self) -> Option<&SharedLeases> {
        None
    }

    fn next_token(&self, may_linger: bool) -> Token {
        self.process.next_token(may_linger, self.share)
    }

    fn is_own_token(&self, token: &Token) -> bool {
        self.process.has_made(token)
    }

    fn distance(&self) -> Duration {
        self.distance
    }

    fn keepers_connection(&self) -> Connection {
        Connection { is_cut_off: self.is_cut_off.get(), has_alarms: true, ..Connection::IN_PROCESS }
    }

    fn admits_lingering(&self, _was_used: bool) -> bool {
        true
    }

    fn kind(&self) -> &'static StoreKind {
        self.kind
    }
}
