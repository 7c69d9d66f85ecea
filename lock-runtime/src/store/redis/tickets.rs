//! Locks that wait for their adopters: a ticket replaces an owner's token, and an adopter's token replaces the ticket.

use lock_wire::{Called, Link, integer};
use redis::{Cmd, Value};

use super::answer::{ownership_of, read_adopted};
use super::reply::Reply;
use super::scripts::{self, Script};
use super::{RedisStore, helper_key, lock_keys, millis};
use crate::clock::Deadline;
use crate::share::Share;
use crate::store::{Adoption, Anchor, Giving, Ownership, StoreError, TicketAnswer};

impl RedisStore {
    pub(super) async fn put_ticket(&self, giving: &Giving, deadline: Deadline) -> Result<Ownership, StoreError> {
        let Giving { key, token, share, ticket, kept_for } = giving;
        let arguments = |_: &Link, command: &mut Cmd| {
            command.arg(&**key);
            helper_key(command, key, "shared");
            command.arg(token.as_str());
            add_capacity(command, *share);
            command.arg(ticket.as_str()).arg(millis(*kept_for));
        };
        let called = self.run_for_ticket(&scripts::TICKET, (key, 2), *share, arguments, deadline).await?;
        let ownership = ownership_of(integer(&called.value).ok_or_else(StoreError::no_answer)?);
        if ownership == Ownership::Owned {
            self.wait_for_replicas(&called, key, deadline).await?;
        }
        Ok(ownership)
    }

    pub(super) async fn take_ticket(
        &self,
        adoption: &Adoption,
        deadline: Deadline,
    ) -> Result<TicketAnswer, StoreError> {
        let Adoption { ask, ticket } = adoption;
        let arguments = |link: &Link, command: &mut Cmd| {
            lock_keys(command, &ask.key, false);
            helper_key(command, &ask.key, "shared");
            command.arg(ticket.as_str()).arg(ask.token.as_str());
            add_capacity(command, ask.share);
            let not_after = link.store_micros_at(ask.give_up).unwrap_or(0);
            command.arg(millis(ask.claim)).arg(ask.fences).arg(not_after);
        };
        let mut called = self.run_for_ticket(&scripts::ADOPT, (&ask.key, 4), ask.share, arguments, deadline).await?;
        let reply = Reply::read(called.take_value()).ok_or_else(StoreError::no_answer)?;
        let (drift, node) = (called.link.drift(), called.live.node());
        let anchor = Anchor { sent: called.sent, store_micros: reply.store_micros, drift, node };
        called.link.update_clock(anchor);
        let answer = reply.answers.into_iter().next().unwrap_or(Value::Nil);
        let adopted = read_adopted(answer, ask, anchor)?;
        if matches!(adopted, TicketAnswer::Granted(_)) {
            self.wait_for_replicas(&called, &ask.key, deadline).await?;
        }
        Ok(adopted)
    }

    async fn run_for_ticket(
        &self,
        script: &Script,
        (key, keys): (&str, usize),
        share: Option<Share>,
        arguments: impl Fn(&Link, &mut Cmd) + Send + Sync,
        deadline: Deadline,
    ) -> Result<Called, StoreError> {
        match self.run(script, (key, keys), arguments, deadline).await {
            Err(error) if error.is_denied() => {
                Err(Box::pin(self.explain_refusal(error, key, None, share, deadline)).await)
            }
            outcome => outcome,
        }
    }
}

/// Empty for an exclusive lock.
pub(super) fn add_capacity(command: &mut Cmd, share: Option<Share>) {
    match share {
        Some(share) => command.arg(share.capacity()),
        None => command.arg(""),
    };
}
