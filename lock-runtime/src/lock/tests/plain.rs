//! Tests: an environment in which nothing fails unless a test says so.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::lock::Env;
use crate::protocol::{Connection, StoreKind};
use crate::settings::Settings;
use crate::share::{Share, SharedLeases};
use crate::token::{Process, Token};

/// One server.
#[derive(Debug)]
pub(in crate::lock) struct Plain {
    settings: Settings,
    key: Arc<str>,
    process: Process,
    share: Option<Share>,
    kind: &'static StoreKind,
    /// The time, if only a test moves it. `None`: the real clocks.
    time: Option<Cell<Moment>>,
    pub(in crate::lock) is_cut_off: Cell<bool>,
}

impl Plain {
    pub(in crate::lock) fn new() -> Self {
        Self {
            settings: Settings::default(),
            key: "p:k".into(),
            process: Process::new("ada"),
            share: None,
            kind: &StoreKind::SERVER,
            time: None,
            is_cut_off: Cell::new(false),
        }
    }

    /// For leases with this share, in a time that stands still.
    pub(in crate::lock) fn still(share: Option<Share>) -> Self {
        Self { share, time: Some(Cell::new(Moment::now())), ..Self::new() }
    }

    /// With a store without a queue.
    pub(in crate::lock) fn polled(self) -> Self {
        Self { kind: &StoreKind { queues: false, ..StoreKind::SERVER }, ..self }
    }

    pub(in crate::lock) fn let_pass(&self, span: Duration) {
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

    fn next_token(&self, now: Moment, may_linger: bool, note: Option<&str>) -> Token {
        self.process.next_token(now, may_linger, self.share, note)
    }

    fn is_own_token(&self, token: &Token) -> bool {
        self.process.has_made(token)
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
