//! What `lockctl` needs besides the public methods: locks by their whole names, and each server by itself.

use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use lock_wire::{Link, Outgoing, Reach};

use super::{LockManager, reach};
use crate::clock::Deadline;
use crate::lock_info::LockInfo;
use crate::options::LockOptions;
use crate::store::AnyStore;
use crate::store::redis::failure::problem;
use crate::store::redis::{RedisStore, lacks_vote};
use crate::store::seen::SHARED;
use crate::token::Token;
use crate::{BackendError, LockError, LockRequest, key};

/// No part of the API: it may change with each version.
#[doc(hidden)]
impl LockManager {
    /// A request for the lock of this whole name. The manager should have no namespace, which would come in front.
    pub fn lock_named(&self, name: &str) -> LockRequest {
        LockRequest::new(self.engine.clone(), LockOptions::of_whole_name(name))
    }

    pub async fn inspect_named(&self, name: &str) -> Result<Option<LockInfo>, LockError> {
        reach::inspect(self.core(), self.whole_name(name)?).await
    }

    pub async fn force_release_named(&self, name: &str) -> Result<bool, LockError> {
        reach::force_release(self.core(), self.whole_name(name)?).await
    }

    /// Whether a lock of this library has such a value.
    #[must_use]
    pub fn is_lock_value(value: &str) -> bool {
        let token = Token::foreign(value);
        token.label().is_some() || token.unforced().as_ref().unwrap_or(&token).as_str() == SHARED
    }

    fn whole_name(&self, name: &str) -> Result<Arc<str>, LockError> {
        self.core().settings().full_name(key::whole_name(name)?)
    }

    /// The servers that have locks: one, the masters of a cluster, or the servers of a quorum. None in memory.
    #[must_use]
    pub fn servers(&self) -> Vec<LockServer> {
        let links = match &**self.core().store() {
            AnyStore::Memory(_) => Vec::new(),
            #[cfg(feature = "testing")]
            AnyStore::Faulty(_) => Vec::new(),
            AnyStore::Redis(store) => store.nodes(),
            AnyStore::Quorum(quorum) => quorum.stores().flat_map(RedisStore::nodes).collect(),
        };
        links.into_iter().map(LockServer).collect()
    }
}

/// One server that has locks.
#[doc(hidden)]
#[derive(Clone)]
pub struct LockServer(Arc<Link>);

impl LockServer {
    /// Its address, without credentials.
    #[must_use]
    pub fn address(&self) -> &str {
        self.0.server()
    }

    /// Sends a command to this server, and returns its reply. The inner error is the server's refusal.
    ///
    /// # Errors
    ///
    /// When there is no connection to the server, or no answer in time.
    pub async fn ask(&self, words: &[&str]) -> Result<Result<redis::Value, BackendError>, BackendError> {
        self.asking(words).await
    }

    fn asking<'a>(
        &'a self,
        words: &'a [&'a str],
    ) -> BoxFuture<'a, Result<Result<redis::Value, BackendError>, BackendError>> {
        let command = move |_: &Link| Outgoing::of(redis::Cmd::new().arg(words).clone());
        let asking = async move {
            match self.0.call(command, Deadline::after(self.0.command_timeout())).await {
                Ok(called) => Ok(Ok(called.value)),
                Err(error) if error.reach() == Reach::Refused => Ok(Err(problem(error))),
                Err(error) => Err(problem(error)),
            }
        };
        asking.boxed()
    }

    /// Why the grants of this server of a quorum do not count, as far as the connection to it knows. `None` when they count, and for
    /// a server of no quorum.
    #[must_use]
    pub fn lacks_vote(&self) -> Option<BackendError> {
        lacks_vote(&self.0)
    }
}

impl fmt::Debug for LockServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockServer").field(&self.address()).finish()
    }
}
