//! [`AnyStore`]: the store of a manager, of any kind.

use std::sync::{Arc, Weak};
use std::time::Duration;

#[cfg(feature = "testing")]
use super::faulty::FaultyStore;
use super::memory::MemoryStore;
use super::quorum::Quorum;
use super::redis::RedisStore;
use super::{Answer, Answers, Ask, Events, Forced, Release, Released, Renewal, Renewed, Seen, Store, StoreError};
use crate::clock::Deadline;
use crate::share::Share;
use crate::token::Token;

/// One of all kinds of stores. It is an enum and not a trait object: a boxed future per verb would slow down each lock.
///
/// A verb of a quorum is boxed all the same. Its future is the largest, a caller has room for the largest of them, and one
/// allocation is nothing beside the commands to several servers.
#[derive(Debug)]
pub(crate) enum AnyStore {
    Memory(MemoryStore),
    Redis(RedisStore),
    Quorum(Quorum<RedisStore>),
    #[cfg(feature = "testing")]
    Faulty(FaultyStore),
}

/// Calls a verb of the store inside.
macro_rules! of_any {
    ($any:expr, $store:ident => $call:expr) => {
        match $any {
            AnyStore::Memory($store) => $call,
            AnyStore::Redis($store) => $call,
            AnyStore::Quorum($store) => $call,
            #[cfg(feature = "testing")]
            AnyStore::Faulty($store) => $call,
        }
    };
}

/// The same for an async verb.
macro_rules! await_any {
    ($any:expr, $store:ident => $call:expr) => {
        match $any {
            AnyStore::Memory($store) => $call.await,
            AnyStore::Redis($store) => $call.await,
            AnyStore::Quorum($store) => Box::pin($call).await,
            #[cfg(feature = "testing")]
            AnyStore::Faulty($store) => Box::pin($call).await,
        }
    };
}

impl Store for AnyStore {
    async fn claim(&self, ask: &Ask, deadline: Deadline) -> Result<Answer, StoreError> {
        await_any!(self, store => store.claim(ask, deadline))
    }

    async fn ask(&self, asks: &[Ask], deadline: Deadline) -> Answers<Answer> {
        await_any!(self, store => store.ask(asks, deadline))
    }

    async fn release_one(&self, release: &Release, deadline: Deadline) -> Result<Released, StoreError> {
        await_any!(self, store => store.release_one(release, deadline))
    }

    async fn release(&self, releases: &[Release], deadline: Deadline) -> Answers<Released> {
        await_any!(self, store => store.release(releases, deadline))
    }

    fn withdraw_behind(&self, release: &Release) {
        of_any!(self, store => store.withdraw_behind(release));
    }

    fn on_release_by_keeper(&self, release: &Release) {
        of_any!(self, store => store.on_release_by_keeper(release));
    }

    async fn renew(&self, renewals: &[Renewal], deadline: Deadline) -> Answers<Renewed> {
        await_any!(self, store => store.renew(renewals, deadline))
    }

    async fn draw(
        &self,
        key: &Arc<str>,
        token: &Token,
        share: Option<Share>,
        count: u32,
        deadline: Deadline,
    ) -> Result<Option<u64>, StoreError> {
        await_any!(self, store => store.draw(key, token, share, count, deadline))
    }

    async fn inspect(&self, key: &str, deadline: Deadline) -> Result<Option<Seen>, StoreError> {
        await_any!(self, store => store.inspect(key, deadline))
    }

    async fn force(&self, key: &str, deadline: Deadline) -> Result<Forced, StoreError> {
        await_any!(self, store => store.force(key, deadline))
    }

    fn refuses_force(&self) -> Option<&'static str> {
        of_any!(self, store => store.refuses_force())
    }

    fn refuses_sharing(&self) -> Option<&'static str> {
        of_any!(self, store => store.refuses_sharing())
    }

    async fn heartbeat(&self, deadline: Deadline) {
        await_any!(self, store => store.heartbeat(deadline));
    }

    async fn connect_again(&self, deadline: Deadline) {
        await_any!(self, store => store.connect_again(deadline));
    }

    fn round_trips_of_a_verb(&self) -> u32 {
        of_any!(self, store => store.round_trips_of_a_verb())
    }

    fn round_trip(&self) -> Duration {
        of_any!(self, store => store.round_trip())
    }

    fn is_cut_off(&self, key: &str) -> bool {
        of_any!(self, store => store.is_cut_off(key))
    }

    fn hears_of(&self, key: &str) -> bool {
        of_any!(self, store => store.hears_of(key))
    }

    fn has_alarms(&self, key: &str) -> bool {
        of_any!(self, store => store.has_alarms(key))
    }

    fn is_connected(&self) -> bool {
        of_any!(self, store => store.is_connected())
    }

    fn begin_to_connect(&self) {
        of_any!(self, store => store.begin_to_connect());
    }

    fn outage(&self, key: &str) -> Option<(Duration, StoreError)> {
        of_any!(self, store => store.outage(key))
    }

    async fn wait_for_releases(&self) {
        await_any!(self, store => store.wait_for_releases());
    }

    fn unanswered(&self, key: &str, since: Duration) -> StoreError {
        of_any!(self, store => store.unanswered(key, since))
    }

    fn attach(&self, process: &str, events: Weak<dyn Events>) {
        of_any!(self, store => store.attach(process, events));
    }

    fn is_immediate(&self) -> bool {
        of_any!(self, store => store.is_immediate())
    }

    fn server_of(&self, key: &str) -> usize {
        of_any!(self, store => store.server_of(key))
    }

    fn server_name(&self, key: &str) -> String {
        of_any!(self, store => store.server_name(key))
    }

    fn draws_with_grants(&self) -> bool {
        of_any!(self, store => store.draws_with_grants())
    }

    fn claims_overtake_waiters(&self) -> bool {
        of_any!(self, store => store.claims_overtake_waiters())
    }

    fn withdraws_refused_tries(&self) -> bool {
        of_any!(self, store => store.withdraws_refused_tries())
    }
}
