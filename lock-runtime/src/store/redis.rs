//! The store on one Redis or Valkey server. The wire format is described in docs/protocol.md.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{
    Anchor, Answer, Answers, Ask, Busy, Events, Grant, Release, Released, Renewal, Renewed, Store, StoreError, one,
};
use crate::clock::{Deadline, Moment, without_drift};
use crate::token::Token;
use ::redis::{Cmd, RedisWrite, Value};
use futures_util::future::join_all;

pub(crate) mod endpoint;
mod eviction;
mod failure;
mod gather;
pub(crate) mod link;
mod push;
pub(crate) mod replicas;
mod reply;
mod rights;
mod scripts;
#[cfg(feature = "sentinel")]
pub(crate) mod sentinel;
#[cfg(test)]
mod tests;
#[cfg(feature = "quorum")]
mod vote;

use failure::CallError;
use gather::Gather;
use link::{Called, Link};
use reply::{Reply, integer, items, text};
use scripts::Script;

/// Commands on one connection; clones share it.
#[derive(Clone)]
pub(crate) struct RedisStore {
    link: Arc<Link>,
    gather: Arc<Gather>,
}

impl RedisStore {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self { link, gather: Arc::default() }
    }

    /// Runs a script by its digest, and by its text when the server does not have it. `EVAL` keeps it there, so
    /// `SCRIPT LOAD`, which needs a right of its own, is never used.
    async fn run(
        &self,
        script: &Script,
        keys: usize,
        arguments: impl Fn(&mut Cmd),
        by: Deadline,
    ) -> Result<Called, StoreError> {
        match self.link.call(script.by_digest(keys, &arguments), by).await {
            Err(CallError::UnknownScript { repeated }) if !mutant!(NoEvalFallback) => {
                let by = by.counted_from(Moment::now());
                let called = self.link.call(script.by_text(keys, &arguments), by).await?;
                Ok(Called { repeated: called.repeated || repeated, ..called })
            }
            outcome => outcome.map_err(StoreError::from),
        }
    }

    /// Rule 7.
    fn grant(sent: Moment, lease: Duration, contended: bool, fence: Option<u64>) -> Answer {
        Answer::Granted(Grant { until: Deadline::new(sent, without_drift(lease)), contended, fence })
    }

    async fn free(&self, releases: &[Release], by: Deadline) -> Result<(Vec<bool>, bool), StoreError> {
        let arguments = |command: &mut Cmd| free_arguments(command, releases);
        let Called { value, repeated, .. } = self.run(&scripts::FREE, 2 * releases.len(), arguments, by).await?;
        Ok((read_freed(value, releases.len())?, repeated))
    }

    /// Gives back in one command, or one by one when that command is refused: a name that the user has no right to must
    /// not keep strangers' locks.
    async fn release_each(&self, releases: &[Release], by: Deadline) -> Vec<Result<Released, StoreError>> {
        match self.release_all(releases, by).await {
            Ok(answers) => answers,
            Err(error) if error.is_denied() && releases.len() > 1 => {
                let by = by.counted_from(Moment::now());
                let each = releases.iter().map(|release| self.release_all(std::slice::from_ref(release), by));
                join_all(each).await.into_iter().map(one).collect()
            }
            Err(error) => releases.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn release_all(&self, releases: &[Release], by: Deadline) -> Answers<Released> {
        let arguments = |command: &mut Cmd| release_arguments(command, releases);
        let Called { value, sent, repeated, .. } =
            self.run(&scripts::RELEASE, 3 * releases.len(), arguments, by).await?;
        let answers = items(value).map_err(|_| StoreError::no_answer())?;
        let read = |(answer, release)| {
            let mut released = read_released(answer, release, sent)?;
            // The release that was sent before may have been the one that took effect.
            released.owned |= repeated;
            if let Some(Answer::Granted(grant)) = released.again.as_mut().filter(|_| self.link.replicas.is_some()) {
                // Rule 16.
                grant.until = Deadline::after(Duration::ZERO);
            }
            Ok(released)
        };
        Ok(answers.into_iter().zip(releases).map(read).collect())
    }

    async fn ask_all(&self, asks: &[Ask], by: Deadline) -> Answers<Answer> {
        let arguments = |command: &mut Cmd| {
            for ask in asks {
                lock_keys(command, &ask.key);
            }
            for ask in asks {
                let not_after = self.link.store_micros_at(ask.give_up).unwrap_or(0);
                command.arg(ask.token.as_str()).arg(millis(ask.claim)).arg(u8::from(ask.wait));
                command.arg(ask.fences).arg(not_after);
            }
        };
        let Called { value, sent, live, .. } = self.run(&scripts::ASK, 3 * asks.len(), arguments, by).await?;
        let mut reply = Reply::read(value).ok_or_else(StoreError::no_answer)?;
        if mutant!(AnswersShifted) {
            reply.answers.rotate_left(1);
        }
        let anchor = Anchor { sent, store_micros: reply.store_micros };
        self.link.learn(anchor);
        #[cfg(feature = "quorum")]
        live.check_vote()?;
        let read = |(answer, ask)| read_answer(answer, ask, anchor);
        let mut answers: Vec<_> = reply.answers.into_iter().zip(asks).map(read).collect();
        self.confirm_all(&mut answers, |answer| matches!(answer, Answer::Granted(_)), &live, by).await;
        Ok(answers)
    }

    async fn free_or_release(&self, releases: &[Release], by: Deadline) -> Answers<Released> {
        if !releases.iter().all(Release::is_lone) {
            return Ok(Box::pin(self.release_each(releases, by)).await);
        }
        let (freed, repeated) = match self.free(releases, by).await {
            // Nothing was changed: what is denied is the script itself, or its only write.
            Err(error) if error.is_denied() => (vec![false; releases.len()], false),
            outcome => outcome?,
        };
        if freed.iter().all(|freed| *freed) {
            return Ok(releases.iter().map(|_| Ok(Released { owned: true, again: None })).collect());
        }
        let rest: Vec<Release> =
            freed.iter().zip(releases).filter(|(freed, _)| !**freed).map(|(_, r)| r.clone()).collect();
        let by = by.counted_from(Moment::now());
        let mut answers = Box::pin(self.release_each(&rest, by)).await.into_iter();
        let merge = |freed| {
            if freed {
                return Ok(Released { owned: true, again: None });
            }
            let mut released = answers.next().unwrap_or_else(|| Err(StoreError::no_answer()))?;
            released.owned |= repeated;
            Ok(released)
        };
        Ok(freed.into_iter().map(merge).collect())
    }

    async fn renew_all(&self, renewals: &[Renewal], by: Deadline) -> Answers<Renewed> {
        let arguments = |command: &mut Cmd| {
            for renewal in renewals {
                command.arg(&*renewal.key);
            }
            for renewal in renewals {
                command.arg(renewal.token.as_str()).arg(millis(renewal.lease + renewal.grace));
            }
        };
        let Called { value, sent, live, .. } = self.run(&scripts::RENEW, renewals.len(), arguments, by).await?;
        let answers = items(value).map_err(|_| StoreError::no_answer())?;
        let read = |(answer, renewal)| read_renewed(answer, renewal, sent);
        let mut answers: Vec<_> = answers.into_iter().zip(renewals).map(read).collect();
        // What is lengthened on the master alone ends on a replica that takes its place as if it had not been.
        self.confirm_all(&mut answers, |renewed| matches!(renewed, Renewed::Until(_)), &live, by).await;
        Ok(answers)
    }
}

impl Store for RedisStore {
    async fn claim(&self, ask: &Ask, by: Deadline) -> Result<Answer, StoreError> {
        let mut command = Cmd::with_capacity(7, 64 + ask.key.len() + ask.token.as_str().len());
        command.arg("SET").arg(&*ask.key).arg(ask.token.as_str()).arg("NX").arg("GET");
        command.arg("PX").arg(millis(ask.claim));
        let Called { value, sent, live, .. } = self.link.call(command, by).await?;
        #[cfg(feature = "quorum")]
        live.check_vote()?;
        let is_taken = value == Value::Nil;
        let answer = read_claimed(value, ask, sent)?;
        if is_taken {
            self.confirmed(&live, by).await?;
        }
        Ok(answer)
    }

    async fn ask(&self, asks: &[Ask], by: Deadline) -> Answers<Answer> {
        let answers = self.ask_all(asks, by).await;
        if rights::is_denied(&answers) { self.explain_asks(asks, answers, by).await } else { answers }
    }

    async fn give_back(&self, release: &Release, by: Deadline) -> Result<Released, StoreError> {
        if release.is_lone() && self.link.is_busy() {
            return gather::release(self, release, by).await;
        }
        one(self.release(std::slice::from_ref(release), by).await)
    }

    async fn release(&self, releases: &[Release], by: Deadline) -> Answers<Released> {
        let answers = self.free_or_release(releases, by).await;
        if rights::is_denied(&answers) { self.explain_releases(releases, answers, by).await } else { answers }
    }

    fn withdraw_behind(&self, release: &Release) {
        let releases = std::slice::from_ref(release);
        // By its text: nobody waits for an answer that would say that the server does not know it.
        let mut command = scripts::RELEASE.by_text(3, &|command: &mut Cmd| release_arguments(command, releases));
        self.link.send_behind(command.set_no_response(true));
    }

    async fn renew(&self, renewals: &[Renewal], by: Deadline) -> Answers<Renewed> {
        let answers = self.renew_all(renewals, by).await;
        if rights::is_denied(&answers) { self.explain_renewals(renewals, answers, by).await } else { answers }
    }

    async fn draw(&self, key: &Arc<str>, token: &Token, count: u32, by: Deadline) -> Result<Option<u64>, StoreError> {
        let arguments = |command: &mut Cmd| draw_arguments(command, key, token, count);
        let Called { value, .. } = match self.run(&scripts::DRAW, 2, arguments, by).await {
            Err(error) if error.is_denied() => return Err(Box::pin(self.explained(error, key, "", by)).await),
            outcome => outcome?,
        };
        read_drawn(&value)
    }

    async fn heartbeat(&self, by: Deadline) {
        // An error reply is an answer too; the link itself draws the conclusions from silence.
        let _ = self.link.call(::redis::cmd("PING"), by).await;
    }

    fn attach(&self, _process: &str, events: Weak<dyn Events>) {
        // A link subscribes to the channel of its process when it connects.
        self.link.attach(events);
    }

    fn is_immediate(&self) -> bool {
        false
    }

    fn draws_with_grants(&self) -> bool {
        true
    }
}

/// The keys of one lock, in the order of the scripts: all in the cluster slot of the lock's name.
fn lock_keys(command: &mut Cmd, key: &str) {
    command.arg(key);
    command.write_arg_fmt(format_args!("{{{key}}}:queue"));
    command.write_arg_fmt(format_args!("{{{key}}}:fence"));
}

fn release_arguments(command: &mut Cmd, releases: &[Release]) {
    for release in releases {
        lock_keys(command, &release.key);
    }
    for release in releases {
        let (reserved, used) = release.unused_fences.unwrap_or((0, 0));
        command.arg(release.token.as_str()).arg(millis(release.claim)).arg(reserved).arg(used);
        match &release.again {
            Some((token, claim)) => command.arg(token.as_str()).arg(millis(*claim)),
            None => command.arg("").arg(0),
        };
    }
}

fn free_arguments(command: &mut Cmd, releases: &[Release]) {
    for release in releases {
        command.arg(&*release.key);
        command.write_arg_fmt(format_args!("{{{}}}:queue", release.key));
    }
    for release in releases {
        command.arg(release.token.as_str());
    }
}

fn draw_arguments(command: &mut Cmd, key: &str, token: &Token, count: u32) {
    command.arg(key).arg(format!("{{{key}}}:fence"));
    command.arg(token.as_str()).arg(count);
}

/// Redis takes whole milliseconds, at least one.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1)
}

fn lease_left(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// What `SET … NX GET` says: nothing, or who owns the lock.
fn read_claimed(value: Value, ask: &Ask, sent: Moment) -> Result<Answer, StoreError> {
    if value == Value::Nil {
        return Ok(RedisStore::grant(sent, ask.claim, false, None));
    }
    let owner = text(value).ok_or_else(StoreError::no_answer)?;
    if owner == ask.token.as_str() {
        // This very ask was executed before; how much is left of its claim is not known, so it is confirmed before use.
        return Ok(RedisStore::grant(sent, Duration::ZERO, false, None));
    }
    let owner = Token::foreign(&owner);
    Ok(Answer::Busy(Busy { owner, frees_in: None, endless: false, anchor: None, yields: false }))
}

fn read_answer(answer: Value, ask: &Ask, anchor: Anchor) -> Result<Answer, StoreError> {
    let fields = items(answer).map_err(reply::error_of_one)?;
    match fields.as_slice() {
        [Value::Int(1), Value::Int(left), Value::Int(waits), Value::Int(fence)] => {
            let lease = lease_left(*left).unwrap_or_default();
            let fence = u64::try_from(*fence).ok().filter(|first| *first > 0 && ask.fences > 0);
            Ok(RedisStore::grant(anchor.sent, lease, *waits == 1, fence))
        }
        [Value::Int(0), Value::Int(left), Value::BulkString(owner)] => {
            let owner = Token::foreign(&String::from_utf8_lossy(owner));
            let (frees_in, endless) = (lease_left(*left), *left == -1);
            Ok(Answer::Busy(Busy { owner, frees_in, endless, anchor: Some(anchor), yields: false }))
        }
        [Value::Int(-1)] => Ok(Answer::Late),
        [Value::Int(-2), message] => Err(reply::error_of_one(message.clone())),
        _ => Err(StoreError::no_answer()),
    }
}

fn read_released(answer: Value, release: &Release, sent: Moment) -> Result<Released, StoreError> {
    if let Some(owned) = integer(&answer) {
        return Ok(Released { owned: owned == 1, again: None });
    }
    let fields = items(answer).map_err(reply::error_of_one)?;
    match fields.as_slice() {
        [Value::Int(owned), Value::Int(micros), Value::Int(left), Value::BulkString(owner), Value::Int(waits)] => {
            let anchor = Anchor { sent, store_micros: u64::try_from(*micros).unwrap_or_default() };
            let again = release.again.as_ref().map(|(token, _)| {
                let lease = lease_left(*left);
                if owner == token.as_str().as_bytes() {
                    return RedisStore::grant(sent, lease.unwrap_or_default(), *waits == 1, None);
                }
                let owner = Token::foreign(&String::from_utf8_lossy(owner));
                Answer::Busy(Busy { owner, frees_in: lease, endless: *left == -1, anchor: Some(anchor), yields: false })
            });
            Ok(Released { owned: *owned == 1, again })
        }
        [Value::Int(-2), message] => Err(reply::error_of_one(message.clone())),
        _ => Err(StoreError::no_answer()),
    }
}

fn read_freed(value: Value, count: usize) -> Result<Vec<bool>, StoreError> {
    let freed: Vec<bool> = match value {
        Value::Int(freed) => vec![freed == 1],
        Value::Array(freed) => freed.iter().map(|freed| *freed == Value::Int(1)).collect(),
        _ => return Err(StoreError::no_answer()),
    };
    if freed.len() == count { Ok(freed) } else { Err(StoreError::no_answer()) }
}

fn read_renewed(answer: Value, renewal: &Renewal, sent: Moment) -> Result<Renewed, StoreError> {
    match answer {
        Value::Int(1) => Ok(Renewed::Until(Deadline::new(sent, without_drift(renewal.lease)))),
        Value::Int(_) => Ok(Renewed::NotOwned),
        other => Err(reply::error_of_one(other)),
    }
}

/// The first fencing token; 0 when the lock is not owned.
fn read_drawn(value: &Value) -> Result<Option<u64>, StoreError> {
    let first = integer(value).and_then(|first| u64::try_from(first).ok()).ok_or_else(StoreError::no_answer)?;
    Ok((first > 0).then_some(first))
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisStore").field(&self.link.server()).finish()
    }
}
