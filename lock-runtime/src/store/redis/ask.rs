//! How to ask for a lock: by the plain claim of a free lock, or by script.

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, ready};
use lock_wire::{CallError, Called, Link};
use redis::{Cmd, Value};

use super::answer::{read_answer, read_claimed};
use super::command::LockCommand;
use super::replicas::Replicas;
use super::reply::Reply;
use super::verb::Verb;
use super::voter::check_vote;
use super::{Outgoing, RedisStore, keys_per_lock, lock_keys, millis, scripts};
use crate::clock::{Deadline, Moment};
use crate::share::Share;
use crate::store::SHARED;
use crate::store::{Anchor, Answer, Answers, Ask, Reach, Replacing, Retry, Store as _, StoreError, exactly_one};
use crate::timing::CLAIM;
use crate::token::Token;

impl RedisStore {
    /// Takes a free lock.
    pub(super) fn claim_free<'a>(
        &'a self,
        ask: &'a Ask,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send + 'a {
        let called =
            self.servers.call(&ask.key, |_: &Link| Outgoing::of(LockCommand::Claim(ask)).beginning(), deadline);
        called.then(move |called| self.on_claimed(called, ask, deadline))
    }

    /// Handles the answer to a claim. What is rarely needed is boxed: otherwise every claim's future would have room for it.
    fn on_claimed<'a>(
        &'a self,
        called: Result<Called, CallError>,
        ask: &'a Ask,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send + 'a {
        let is_repeated = called.as_ref().is_ok_and(|called| called.repeated);
        let more: BoxFuture<'a, _> = match self.read_claim(called, ask) {
            Ok((answer, Some(called))) => {
                Box::pin(async move { self.wait_for_replicas(&called, &ask.key, deadline).await.map(|()| answer) })
            }
            Ok((Answer::Busy(busy), None)) if is_asked_for(&busy.owner, ask, is_repeated) => Box::pin(async move {
                match self.ask_by_script(ask, deadline).await {
                    // Rule 1: a grant of the first claim is withdrawn, unless an answer says that there was none.
                    Err(error) if is_repeated => Err(StoreError { reach: Reach::Unanswered, ..error }),
                    // In a migrating slot the keys are on both servers, which stops a script but not a claim.
                    Err(error) if !busy.owner.is_known() && error.retry == Retry::Later => Ok(Answer::Busy(busy)),
                    answer => answer,
                }
            }),
            answer => return Either::Left(ready(answer.map(|(answer, _)| answer))),
        };
        Either::Right(more)
    }

    /// The answer to a claim, and the call if replicas have to confirm its grant.
    fn read_claim(
        &self,
        called: Result<Called, CallError>,
        ask: &Ask,
    ) -> Result<(Answer, Option<Box<Called>>), StoreError> {
        let mut called = called.map_err(|error| self.name_failure(error))?;
        check_vote(&called)?;
        let value = called.take_value();
        let is_granted = value == Value::Okay;
        let answer = read_claimed(value, ask, called.sent, called.link.drift()).inspect_err(|_| {
            called.distrust();
        })?;
        let is_confirmed = !is_granted || called.known::<Replicas>().is_none();
        Ok((answer, (!is_confirmed).then(|| Box::new(called))))
    }

    /// Asks for a lock about whose owner a claim learned too little.
    async fn ask_by_script(&self, ask: &Ask, deadline: Deadline) -> Result<Answer, StoreError> {
        if deadline.has_passed() {
            // This task is polled late. To an ask sent now, the server would give the same answer.
            return Ok(Answer::Late);
        }
        let ask = Ask { wait: false, ..ask.clone() };
        let deadline = deadline.counted_from(Moment::now());
        exactly_one(self.ask(std::slice::from_ref(&ask), deadline).await)
    }
}

/// Whether a claim that found this `owner` is followed by a script. A waiter asks by script anyway; only a single try may need this. The
/// mark of a shared lock tells neither who owns it nor whether a lease is left. If a lock rests or waits for its adopter, only the end of
/// that is worth knowing. An owner may be unknown: it was gone a moment later, or its slot is migrating. If the claim was sent twice, the
/// unknown owner may be its own first try, and a waiter may leave before it asks again.
fn is_asked_for(owner: &Token, ask: &Ask, is_repeated: bool) -> bool {
    mutant!(RestWithoutEnd => return !ask.wait && owner.as_str() == SHARED);
    let may_be_own = is_repeated && !owner.is_known();
    mutant!(RepeatedClaimIsRefused => if may_be_own {
        return false;
    });
    may_be_own || !ask.wait && (owner.as_str() == SHARED || owner.is_marked() || !owner.is_known())
}

impl Verb for Ask {
    type Answer = Answer;

    async fn send(store: &RedisStore, asks: &[Self], deadline: Deadline) -> Answers<Answer> {
        let is_shared = asks.iter().any(Verb::is_shared);
        // An ask that replaces is always sent alone.
        let replacing = asks.iter().find_map(|ask| ask.replaces.as_ref());
        let arguments = |link: &Link, command: &mut Cmd| {
            for ask in asks {
                lock_keys(command, &ask.key, is_shared);
            }
            for ask in asks {
                let not_after = link.store_micros_at(ask.give_up).unwrap_or(0);
                command.arg(ask.token.as_str()).arg(millis(ask.claim));
                if let Some(share) = ask.share {
                    command.arg(share.capacity());
                }
                command.arg(u8::from(ask.wait)).arg(ask.fences).arg(not_after);
            }
            if let Some(Replacing { name, is_known }) = replacing {
                command.arg(millis(CLAIM)).arg(name.as_str()).arg(u8::from(*is_known));
            }
            if let Some(tag) = asks.first().and_then(|ask| link.shard_tag(&ask.key)) {
                command.arg(tag);
            }
        };
        let queued = asks.first().filter(|ask| ask.wait).map(|ask| &*ask.key);
        let outgoing = |command: Cmd| Outgoing::from(command).listening(queued).beginning();
        let keys = (asks.first().map_or("", |ask| &ask.key), keys_per_lock(is_shared) * asks.len());
        let script = match (is_shared, replacing) {
            (true, _) => &scripts::SHARED_ASK,
            (false, Some(_)) => &scripts::REPLACE,
            (false, None) => &scripts::ASK,
        };
        let mut called = store.run_as(outgoing, script, keys, arguments, deadline).await?;
        let reply = Reply::read(called.take_value()).ok_or_else(StoreError::no_answer)?;
        let (drift, node) = (called.link.drift(), called.live.node());
        let anchor = Anchor { sent: called.sent, store_micros: reply.store_micros, drift, node };
        called.link.update_clock(anchor);
        check_vote(&called)?;
        let read = |(answer, ask)| read_answer(answer, ask, anchor).map_err(|error| error.of(&called.link));
        let mut answers: Vec<_> = reply.answers.into_iter().zip(asks).map(read).collect();
        let is_granted = |answer: &Answer| matches!(answer, Answer::Granted(_));
        store.wait_for_replicas_of((&called, keys.0), &mut answers, is_granted, deadline).await;
        Ok(answers)
    }

    fn key(&self) -> &str {
        &self.key
    }

    fn share(&self) -> Option<Share> {
        self.share
    }

    /// `None`. The script may have granted the lock before the server refused the rest. But an ask may also be repeated for a token that is
    /// in use by now, and only the lock knows that: it withdraws tokens that are not in use.
    fn token_to_release(&self) -> Option<&Token> {
        mutant!(RefusedAskReleased => return Some(&self.token));
        None
    }
}
