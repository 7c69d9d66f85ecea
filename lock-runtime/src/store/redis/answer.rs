//! Translates replies into the store's answers.

use std::time::Duration;

use lock_wire::{integer, text};
use redis::Value;

use super::reply::{self, items};
use crate::BackendError;
use crate::clock::{Deadline, Drift, Moment};
use crate::observe;
use crate::store::{
    Anchor, Answer, Ask, Busy, Grant, Ownership, Reach, Release, Renewal, Renewed, StoreError, TicketAnswer,
};
use crate::token::Token;

/// Rule 7: the deadline counts from the instant before the command was sent. `lease` is the part of the lease that is certain.
fn grant(sent: Moment, lease: Duration, contended: bool, fence: Option<u64>) -> Answer {
    Answer::Granted(Grant { until: Deadline::new(sent, lease), contended, fence })
}

fn lease_left(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// When a key with this `PTTL` ends. A server keeps a key to the end of its last millisecond, so an ask that arrives after exactly this
/// many milliseconds may still find it.
fn frees_in(millis: i64) -> Option<Duration> {
    Some(lease_left(millis)? + Duration::from_millis(1))
}

/// Reads the reply to a claim: a grant, the owner of the lock, or nothing if the owner was not asked for.
pub(super) fn read_claimed(value: Value, ask: &Ask, sent: Moment, drift: Drift) -> Result<Answer, StoreError> {
    let owner = match value {
        Value::Okay => return Ok(grant(sent, drift.trusted(ask.claim), false, None)),
        Value::Nil => String::new(),
        value => text(value).ok_or_else(StoreError::no_answer)?,
    };
    if owner == ask.token.as_str() {
        // The same ask was executed before. The rest of its claim is unknown, so the claim is confirmed before use.
        return Ok(grant(sent, Duration::ZERO, false, None));
    }
    let owner = Token::foreign(&owner);
    Ok(Answer::Busy(Busy { owner, frees_in: None, endless: false, anchor: None, pause: Duration::ZERO, stands: false }))
}

pub(super) fn read_answer(answer: Value, ask: &Ask, anchor: Anchor) -> Result<Answer, StoreError> {
    let fields = items(answer).map_err(reply::error_of_one)?;
    match fields.as_slice() {
        [Value::Int(1), Value::Int(left), Value::Int(waits), Value::Int(fence)] => {
            let lease = anchor.drift.trusted(lease_left(*left).unwrap_or_default());
            let fence = u64::try_from(*fence).ok().filter(|first| *first > 0 && ask.fences > 0);
            Ok(grant(anchor.sent, lease, *waits == 1, fence))
        }
        [Value::Int(0), Value::Int(left), Value::BulkString(owner), Value::Int(pause)] => {
            let owner = Token::from_bytes(owner);
            let (frees_in, endless, pause) = (frees_in(*left), *left == -1, lease_left(*pause).unwrap_or_default());
            Ok(Answer::Busy(Busy { owner, frees_in, endless, anchor: Some(anchor), pause, stands: false }))
        }
        [Value::Int(2)] => Ok(Answer::Replaced),
        [Value::Int(-1)] => Ok(Answer::Late),
        [Value::Int(-2), message] => Err(reply::error_of_one(message.clone())),
        _ => Err(StoreError::no_answer()),
    }
}

pub(super) fn read_adopted(answer: Value, ask: &Ask, anchor: Anchor) -> Result<TicketAnswer, StoreError> {
    if let Value::Array(fields) = &answer {
        match fields.as_slice() {
            [Value::Int(0)] => return Ok(TicketAnswer::Over),
            [Value::Int(2)] => return Ok(TicketAnswer::Forced),
            _ => {}
        }
    }
    match read_answer(answer, ask, anchor)? {
        Answer::Granted(grant) => Ok(TicketAnswer::Granted(grant)),
        Answer::Busy(_) | Answer::Replaced => Err(StoreError::no_answer()),
        Answer::Late => {
            let problem = BackendError::new("the server came to the adoption too late");
            Err(StoreError { out_of_time: true, reach: Reach::Refused, ..StoreError::later(problem) })
        }
    }
}

/// Whether the token owned the lock, from the answer to the end of its hold.
pub(super) fn ownership_of(answer: i64) -> Ownership {
    match answer {
        1 => Ownership::Owned,
        2 => Ownership::Forced,
        _ => Ownership::NotOwned,
    }
}

pub(super) fn read_released(answer: Value, release: &Release) -> Result<Ownership, StoreError> {
    if let Some(ownership) = integer(&answer) {
        return Ok(ownership_of(ownership));
    }
    let fields = items(answer).map_err(reply::error_of_one)?;
    match fields.as_slice() {
        [Value::Int(-3), message] => {
            let error = reply::error_of_one(message.clone());
            // A missing right is a mistake in the settings, so tell the caller of the release.
            if error.is_denied() {
                return Err(error);
            }
            observe::queue_unusable(&release.key, &error.problem);
            Ok(Ownership::Owned)
        }
        [Value::Int(-2), message] => Err(reply::error_of_one(message.clone())),
        _ => Err(StoreError::no_answer()),
    }
}

/// What became of a lock that was to be released without a look at its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freed {
    /// It is unchanged, unless an earlier run of a repeated command changed it.
    Not,
    /// It is free, and has no waiters.
    Done,
    /// It is free, and has waiters.
    Awaited,
}

/// The outcome of each release; `None` when all are done.
pub(super) fn read_freed(value: Value, count: usize) -> Result<Option<Vec<Freed>>, StoreError> {
    let read = |freed: &Value| match freed {
        Value::Int(1) => Freed::Done,
        Value::Int(2) => Freed::Awaited,
        _ => Freed::Not,
    };
    match value {
        Value::Int(freed) if usize::try_from(freed) == Ok(count) => Ok(None),
        Value::Array(freed) if freed.len() == count => Ok(Some(freed.iter().map(read).collect())),
        _ => Err(StoreError::no_answer()),
    }
}

pub(super) fn read_renewed(
    answer: Value,
    renewal: &Renewal,
    sent: Moment,
    drift: Drift,
) -> Result<Renewed, StoreError> {
    match answer {
        Value::Int(1) => Ok(Renewed::Until(Deadline::new(sent, drift.trusted(renewal.lease)))),
        Value::Int(2) => Ok(Renewed::Forced),
        Value::Int(_) => Ok(Renewed::NotOwned),
        other => Err(reply::error_of_one(other)),
    }
}

/// The first fencing token. The reply is 0 when the token does not own the lock.
pub(super) fn read_drawn(value: &Value) -> Result<Option<u64>, StoreError> {
    let first = integer(value).and_then(|first| u64::try_from(first).ok()).ok_or_else(StoreError::no_answer)?;
    Ok((first > 0).then_some(first))
}
