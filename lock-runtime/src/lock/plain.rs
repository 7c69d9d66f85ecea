//! Tests: a world in which nothing goes wrong.

use std::sync::Arc;
use std::time::Duration;

use super::Env;
use crate::clock::Moment;
use crate::protocol::StoreKind;
use crate::settings::Settings;
use crate::share::Share;
use crate::token::{Process, Token};

/// One server, for the lock alone. Its clock is tokio's, so that a test can stop it.
#[derive(Debug)]
pub(super) struct Plain {
    settings: Settings,
    key: Arc<str>,
    process: Process,
    distance: Duration,
}

impl Plain {
    pub(super) fn new() -> Self {
        Self::at(Duration::ZERO)
    }

    /// With a server at this `distance`.
    pub(super) fn at(distance: Duration) -> Self {
        Self { settings: Settings::default(), key: "p:k".into(), process: Process::new("ada"), distance }
    }
}

impl Env for Plain {
    fn now(&self) -> Moment {
        Moment::now()
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn key(&self) -> &Arc<str> {
        &self.key
    }

    fn share(&self) -> Option<Share> {
        None
    }

    fn next_token(&self, may_linger: bool) -> Token {
        self.process.next_token(may_linger, None)
    }

    fn is_own_token(&self, token: &Token) -> bool {
        self.process.has_made(token)
    }

    fn is_closed(&self) -> bool {
        false
    }

    fn distance(&self) -> Duration {
        self.distance
    }

    fn is_cut_off(&self) -> bool {
        false
    }

    fn hears(&self) -> bool {
        true
    }

    fn has_alarms(&self) -> bool {
        true
    }

    fn admits_lingering(&self, _was_used: bool) -> bool {
        true
    }

    fn has_waiters_for_any_permit(&self) -> bool {
        false
    }

    fn kind(&self) -> &'static StoreKind {
        &StoreKind::SERVER
    }
}
