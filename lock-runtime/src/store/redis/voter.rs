//! A server of a quorum, over one link.

use lock_wire::{Called, Link, integer, text};
use redis::Cmd;

use super::vote::Vote;
use super::{Outgoing, RedisStore, scripts};
use crate::BackendError;
use crate::clock::Deadline;
use crate::store::StoreError;
use crate::store::voter::{Eligibility, MARKER, Voter};
use crate::token::Token;

/// Fails for a server without a vote: its grants don't count.
pub(super) fn check_vote(called: &Called) -> Result<(), StoreError> {
    called.known().map_or(Ok(()), |vote: &Vote| vote.eligibility().vote())
}

/// Fails for a server without a vote: it may have forgotten which numbers were drawn (rule Q3), and the token's grant there did not count.
pub(super) fn check_vote_on_fences(called: &Called) -> Result<(), StoreError> {
    mutant!(RestartedDraws => return Ok(()));
    check_vote(called)
}

/// Why the grants of the connected server do not count. `None` if they count, or the server is not part of a quorum.
pub(crate) fn lacks_vote(link: &Link) -> Option<BackendError> {
    link.known::<Vote>()?.eligibility().vote().err().map(|refusal| refusal.problem)
}

impl Voter for RedisStore {
    fn name(&self) -> &str {
        self.servers.one().map_or("", |link| link.server())
    }

    fn identity(&self) -> Option<String> {
        Some(self.servers.one()?.known::<Vote>()?.run_id.clone())
    }

    async fn probe(&self, deadline: Deadline) -> Result<Eligibility, StoreError> {
        if let Some(link) = self.servers.one().filter(|link| !link.is_connected()) {
            link.ready(deadline).await?;
            // This was read a moment ago, along with the greeting.
            if let Some(vote) = link.known::<Vote>() {
                return Ok(vote.eligibility());
            }
        }
        let command = |_: &Link| Outgoing::from(redis::cmd("GET").arg(MARKER).clone());
        let mut called = self.servers.call(MARKER, command, deadline).await?;
        let value = text(called.take_value());
        let Some(vote) = called.known::<Vote>() else { return Ok(Eligibility::InService) };
        vote.mark(value);
        Ok(vote.eligibility())
    }

    async fn mark_in_service(&self, deadline: Deadline) -> Result<(), StoreError> {
        let Some(vote) = self.servers.one().and_then(|link| link.known::<Vote>()) else { return Ok(()) };
        let is_eligible = matches!(vote.eligibility(), Eligibility::Eligible { .. });
        let command = |_: &Link| {
            let mut command = redis::cmd("SET");
            command.arg(MARKER).arg(&vote.run_id);
            if !is_eligible {
                command.arg("NX");
            }
            command.arg("GET");
            Outgoing::from(command)
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
        check_vote_on_fences(&called)?;
        match integer(&called.value) {
            Some(raised) => Ok(raised == 1),
            None => Err(StoreError::no_answer()),
        }
    }
}
