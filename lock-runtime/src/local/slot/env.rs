//! What a lock sees of its slot and its manager.

use std::sync::Arc;

use super::Slot;
use crate::clock::Moment;
use crate::lock::Env;
use crate::protocol::{Connection, StoreKind};
use crate::settings::Settings;
use crate::share::{Share, SharedLeases};
use crate::store::Store;
use crate::token::Token;

impl Env for Slot {
    fn now(&self) -> Moment {
        Moment::now()
    }

    fn settings(&self) -> &Settings {
        self.core.settings()
    }

    fn key(&self) -> &Arc<str> {
        &self.key
    }

    fn share(&self) -> Option<Share> {
        self.share
    }

    fn leases(&self) -> Option<&SharedLeases> {
        self.leases.as_ref()
    }

    fn next_token(&self, now: Moment, may_linger: bool, note: Option<&str>) -> Token {
        self.core.next_token(now, may_linger, self.share, note)
    }

    fn is_own_token(&self, token: &Token) -> bool {
        self.core.is_own_token(token)
    }

    fn keepers_connection(&self) -> Connection {
        self.core.schedule().connection(&self.key)
    }

    fn admits_lingering(&self, was_used: bool) -> bool {
        self.core.lingering.admits(&self.key, was_used)
    }

    fn kind(&self) -> &'static StoreKind {
        self.core.store().kind()
    }
}
