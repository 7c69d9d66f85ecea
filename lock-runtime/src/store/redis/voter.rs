//! A server of a quorum, over one link.

use std::sync::Arc;

use redis::Cmd;

use super::RedisStore;
use super::link::{Link, Live};
use super::reply::{integer, text};
use super::scripts;
use super::servers::Servers;
use crate::BackendError;
use crate::clock::Deadline;
use crate::store::StoreError;
use crate::store::voter::{Eligibility, MARKER, Voter};
use crate::token::Token;

impl Live {
    /// Fails for a server without a vote: its grants don't count.
    pub(super) fn check_vote(&self) -> Result<(), StoreError> {
        self.vote.as_ref().map_or(Ok(()), |vote| vote.eligibility().vote())
    }

    /// Fails for a server without a vote: it may have forgotten which numbers were drawn (rule Q3), and owns the lock for a token whose
    /// grant did not count.
    pub(super) fn check_vote_on_fences(&self) -> Result<(), StoreError> {
        mutant!(RestartedDraws => return Ok(()));
        self.check_vote()
    }
}

impl Link {
    /// Why the grants of the server that is connected do not count. `None` when they count, and for a server of no quorum.
    pub(crate) fn lacks_vote(&self) -> Option<BackendError> {
        self.live_vote()?.eligibility().vote().err().map(|refusal| refusal.problem)
    }
}

impl RedisStore {
    /// The link to the one server.
    fn link(&self) -> Option<&Arc<Link>> {
        match &self.servers {
            Servers::One(link) => Some(link),
            Servers::Cluster(_) => None,
        }
    }
}

impl Voter for RedisStore {
    fn name(&self) -> &str {
        self.link().map_or("", |link| link.server())
    }

    fn identity(&self) -> Option<String> {
        Some(self.link()?.live_vote()?.run_id.clone())
    }

    async fn probe(&self, deadline: Deadline) -> Result<Eligibility, StoreError> {
        if let Some(link) = self.link().filter(|link| !link.is_connected()) {
            link.ready(deadline).await?;
            // This was read a moment ago, along with the greeting.
            if let Some(vote) = link.live_vote() {
                return Ok(vote.eligibility());
            }
        }
        let command = |_: &Link| redis::cmd("GET").arg(MARKER).clone().into();
        let called = self.servers.call(MARKER, command, deadline).await?;
        let Some(vote) = &called.live.vote else { return Ok(Eligibility::InService) };
        vote.mark(text(called.value));
        Ok(vote.eligibility())
    }

    async fn mark_in_service(&self, deadline: Deadline) -> Result<(), StoreError> {
        let Some(vote) = self.link().and_then(|link| link.live_vote()) else { return Ok(()) };
        let is_eligible = matches!(vote.eligibility(), Eligibility::Eligible { .. });
        let command = |_: &Link| {
            let mut command = redis::cmd("SET");
            command.arg(MARKER).arg(&vote.run_id);
            if !is_eligible {
                command.arg("NX");
            }
            command.arg("GET");
            command.into()
        };
        let before = text(self.servers.call(MARKER, command, deadline).await?.value);
        vote.mark(if is_eligible { Some(vote.run_id.clone()) } else { before.or_else(|| Some(vote.run_id.clone())) });
        Ok(())
    }

    async fn raise(&self, key: &str, token: &Token, fence: u64, deadline: Deadline) -> Result<bool, StoreError> {
        let arguments = |_: &Link, command: &mut Cmd| {
            command.arg(key).arg(format!("{{{key}}}:fence"));
            command.arg(token.as_str()).arg(fence);
        };
        let called = self.run(&scripts::RAISE, (key, 2), arguments, deadline).await?;
        called.live.check_vote_on_fences()?;
        match integer(&called.value) {
            Some(raised) => Ok(raised == 1),
            None => Err(StoreError::no_answer()),
        }
    }
}
