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

/// Each of these methods, called on the store inside.
macro_rules! of_any {
    ($(fn $name:ident(&$any:ident $(, $argument:ident: $kind:ty)* $(,)?) $(-> $answer:ty)?;)*) => {
        $(fn $name(&$any $(, $argument: $kind)*) $(-> $answer)? {
            match $any {
                AnyStore::Memory(store) => store.$name($($argument),*),
                AnyStore::Redis(store) => store.$name($($argument),*),
                AnyStore::Quorum(store) => store.$name($($argument),*),
                #[cfg(feature = "testing")]
                AnyStore::Faulty(store) => store.$name($($argument),*),
            }
        })*
    };
}

/// The same for async methods.
macro_rules! await_any {
    ($(async fn $name:ident(&$any:ident $(, $argument:ident: $kind:ty)* $(,)?) $(-> $answer:ty)?;)*) => {
        $(async fn $name(&$any $(, $argument: $kind)*) $(-> $answer)? {
            match $any {
                AnyStore::Memory(store) => store.$name($($argument),*).await,
                AnyStore::Redis(store) => store.$name($($argument),*).await,
                AnyStore::Quorum(store) => Box::pin(store.$name($($argument),*)).await,
                #[cfg(feature = "testing")]
                AnyStore::Faulty(store) => Box::pin(store.$name($($argument),*)).await,
            }
        })*
    };
}

impl Store for AnyStore {
    await_any! {
        async fn claim(&self, ask: &Ask, deadline: Deadline) -> Result<Answer, StoreError>;
        async fn ask(&self, asks: &[Ask], deadline: Deadline) -> Answers<Answer>;
        async fn release_one(&self, release: &Release, deadline: Deadline) -> Result<Released, StoreError>;
        async fn release(&self, releases: &[Release], deadline: Deadline) -> Answers<Released>;
        async fn renew(&self, renewals: &[Renewal], deadline: Deadline) -> Answers<Renewed>;
        async fn draw(
            &self,
            key: &Arc<str>,
            token: &Token,
            share: Option<Share>,
            count: u32,
            deadline: Deadline,
        ) -> Result<Option<u64>, StoreError>;
        async fn inspect(&self, key: &str, deadline: Deadline) -> Result<Option<Seen>, StoreError>;
        async fn force(&self, key: &str, deadline: Deadline) -> Result<Forced, StoreError>;
        async fn heartbeat(&self, deadline: Deadline);
        async fn connect_again(&self, deadline: Deadline);
        async fn wait_for_releases(&self);
    }

    of_any! {
        fn withdraw_behind(&self, release: &Release);
        fn on_release_by_keeper(&self, release: &Release);
        fn refuses_force(&self) -> Option<&'static str>;
        fn refuses_sharing(&self) -> Option<&'static str>;
        fn round_trips_of_a_verb(&self) -> u32;
        fn round_trip(&self) -> Duration;
        fn is_cut_off(&self, key: &str) -> bool;
        fn hears_of(&self, key: &str) -> bool;
        fn has_alarms(&self, key: &str) -> bool;
        fn is_connected(&self) -> bool;
        fn begin_to_connect(&self);
        fn outage(&self, key: &str) -> Option<(Duration, StoreError)>;
        fn unanswered(&self, key: &str, since: Duration) -> StoreError;
        fn attach(&self, process: &str, events: Weak<dyn Events>);
        fn is_immediate(&self) -> bool;
        fn server_of(&self, key: &str) -> usize;
        fn server_name(&self, key: &str) -> String;
        fn draws_with_grants(&self) -> bool;
        fn claims_overtake_waiters(&self) -> bool;
        fn withdraws_refused_tries(&self) -> bool;
    }
}
