//! [`AnyStore`]: the store of a manager, of any kind.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, Either};

#[cfg(feature = "testing")]
use super::faulty::FaultyStore;
use super::memory::MemoryStore;
use super::quorum::Quorum;
use super::redis::RedisStore;
use super::{
    Adoption, Answer, Answers, Ask, Connection, Events, Forced, Giving, Ownership, Release, Renewal, Renewed, Seen,
    Store, StoreError, StoreKind, TicketAnswer,
};
use crate::clock::Deadline;
use crate::share::Share;
use crate::token::Token;

/// Any kind of store. It is an enum rather than a trait object: a boxed future per verb would slow down each lock.
///
/// A verb that few locks need is boxed anyway, so that its code is generated once and not for each caller. A verb of a quorum is always
/// boxed: its future is the largest, every caller would have room for it, and one allocation costs nothing compared with commands to
/// several servers.
#[derive(Debug)]
pub(crate) enum AnyStore {
    Memory(MemoryStore),
    Redis(RedisStore),
    Quorum(Quorum<RedisStore>),
    #[cfg(feature = "testing")]
    Faulty(Arc<FaultyStore>),
}

/// Forwards each of these methods to the store inside.
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

/// Forwards async methods, boxed. An argument that is borrowed is written `@& name: kind`.
macro_rules! box_any {
    ($(async fn $name:ident($($(@$and:tt)? $argument:ident: $kind:ty),* $(,)?) $(-> $answer:ty)?;)*) => {
        $(async fn $name(&self $(, $argument: $($and)? $kind)*) $(-> $answer)? {
            #[allow(clippy::elidable_lifetime_names, reason = "only where no argument is borrowed")]
            fn boxed<'a>(any: &'a AnyStore $(, $argument: $($and 'a)? $kind)*) -> BoxFuture<'a, box_any!(@ $($answer)?)> {
                match any {
                    AnyStore::Memory(store) => Box::pin(store.$name($($argument),*)),
                    AnyStore::Redis(store) => Box::pin(store.$name($($argument),*)),
                    AnyStore::Quorum(store) => Box::pin(store.$name($($argument),*)),
                    #[cfg(feature = "testing")]
                    AnyStore::Faulty(store) => Box::pin(store.$name($($argument),*)),
                }
            }
            boxed(self $(, $argument)*).await
        })*
    };
    (@) => { () };
    (@ $answer:ty) => { $answer };
}

/// Forwards async methods, boxed only for a quorum. They are not `async fn`s, which would store their arguments twice.
macro_rules! await_any {
    ($(async fn $name:ident($item:ident: $kind:ty, deadline: Deadline) -> $answer:ty;)*) => {
        $(fn $name<'a>(
            &'a self,
            $item: &'a $kind,
            deadline: Deadline,
        ) -> impl Future<Output = $answer> + Send + 'a {
            let boxed: BoxFuture<'a, $answer> = match self {
                AnyStore::Memory(store) => return Either::Left(Either::Left(store.$name($item, deadline))),
                AnyStore::Redis(store) => return Either::Left(Either::Right(store.$name($item, deadline))),
                AnyStore::Quorum(store) => Box::pin(store.$name($item, deadline)),
                #[cfg(feature = "testing")]
                AnyStore::Faulty(store) => Box::pin(store.$name($item, deadline)),
            };
            Either::Right(boxed)
        })*
    };
}

impl Store for AnyStore {
    await_any! {
        async fn claim(ask: Ask, deadline: Deadline) -> Result<Answer, StoreError>;
        async fn release_one(release: Release, deadline: Deadline) -> Result<Ownership, StoreError>;
    }

    box_any! {
        async fn ask(@& asks: [Ask], deadline: Deadline) -> Answers<Answer>;
        async fn release(@& releases: [Release], deadline: Deadline) -> Answers<Ownership>;
        async fn renew(@& renewals: [Renewal], deadline: Deadline) -> Answers<Renewed>;
        async fn draw(
            @& key: Arc<str>,
            @& token: Token,
            share: Option<Share>,
            count: u32,
            deadline: Deadline,
        ) -> Result<Option<u64>, StoreError>;
        async fn inspect(@& key: str, deadline: Deadline) -> Result<Option<Seen>, StoreError>;
        async fn force(@& key: str, one: Option<(Share, Token)>, deadline: Deadline) -> Result<Forced, StoreError>;
        async fn give(@& giving: Giving, deadline: Deadline) -> Result<Ownership, StoreError>;
        async fn adopt(@& adoption: Adoption, deadline: Deadline) -> Result<TicketAnswer, StoreError>;
        async fn room(@& key: str);
        async fn heartbeat(deadline: Deadline);
        async fn connect_again(deadline: Deadline);
        async fn wait_for_releases();
    }

    of_any! {
        fn kind(&self) -> &'static StoreKind;
        fn withdraw_behind(&self, release: &Release);
        fn round_trip(&self) -> Duration;
        fn connection(&self, key: &str) -> Connection;
        fn probe_reader(&self) -> bool;
        fn reconnect_reader(&self, key: &str);
        fn lag(&self) -> Duration;
        fn is_connected(&self) -> bool;
        fn begin_to_connect(&self);
        fn outage(&self, key: &str) -> Option<(Duration, StoreError)>;
        fn unanswered(&self, key: &str, since: Duration) -> StoreError;
        fn attach(&self, process: &str, events: Weak<dyn Events>);
        fn server_of(&self, key: &str) -> usize;
        fn server_name(&self, key: &str) -> String;
    }
}
