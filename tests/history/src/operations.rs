//! [`operations`]: a history in the format for other checkers, one line per call.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::claims::{HARNESS, History};
use super::event::{How, What};

/// One call, with the instants of [`now`](super::event::now) before and after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The place and the seed of the round. Each round has its own servers, and so its own locks and register.
    pub round: String,
    /// The process and the task. The operations of a task don't overlap.
    pub client: String,
    /// The lock and the register that it guards; for a fault, its name.
    pub key: String,
    /// The operation.
    pub op: Op,
    /// Just before the call.
    pub invoke: u64,
    /// Just after the return. `None`: the call may take effect at any later time, or never.
    #[serde(rename = "return")]
    pub returned: Option<u64>,
    /// The outcome.
    pub outcome: Outcome,
    /// Which acquire of the round it belongs to.
    pub hold: Option<usize>,
    /// The fencing token.
    pub fence: Option<u64>,
    /// The value that was read or written.
    pub value: Option<u64>,
}

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// An acquire that may wait.
    Acquire,
    /// An acquire that does not wait.
    Try,
    /// A release.
    Release,
    /// No call, but the end of a hold without a successful release: the earliest time at which its task may stop relying on it.
    Lost,
    /// Reads the register, and raises its fence.
    Open,
    /// Writes to the register.
    Write,
    /// Reads the register at the end, without a token.
    Read,
    /// A fault.
    Fault,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It did what was asked.
    Ok,
    /// Somebody else has the lock.
    Busy,
    /// The hold had ended before the release.
    Lost,
    /// The register has seen a greater token.
    Refused,
    /// Unknown: no reply, an unclear error, a dropped call or hold, or a killed process.
    Unknown,
}

/// All calls of a round in the order of their invocation. `tells`: the release of a lost hold returns an error.
#[must_use]
pub fn operations(round: &str, history: &History, tells: bool) -> Vec<Operation> {
    let call = |client: String, key: &str, op, invoke, (returned, outcome)| Operation {
        round: round.to_owned(),
        client,
        key: key.to_owned(),
        op,
        invoke,
        returned,
        outcome,
        hold: None,
        fence: None,
        value: None,
    };
    let mut all = Vec::new();
    for (number, attempt) in history.attempts.iter().enumerate() {
        let mut note = |op, invoke, end, fence| {
            let client = format!("{}/{}", attempt.process, attempt.task);
            all.push(Operation { hold: Some(number + 1), fence, ..call(client, &attempt.key, op, invoke, end) });
        };
        let op = if attempt.wanted.timeout == 0 { Op::Try } else { Op::Acquire };
        let answer = attempt.outcome.as_ref().map(|(at, how, _)| (*at, *how));
        note(op, attempt.invoked, ended(answer), attempt.claim.as_ref().and_then(|claim| claim.fence));
        let Some(claim) = &attempt.claim else { continue };
        let is_told = tells || claim.released == Some(claim.end());
        let end = ended(claim.answer.filter(|_| is_told && !claim.dropped));
        if let Some(called) = claim.released {
            note(Op::Release, called, end, None);
        }
        if end.1 != Outcome::Ok {
            note(Op::Lost, claim.end().min(history.last()), UNKNOWN, None);
        }
    }
    // The requests of each task to the register that have no reply yet.
    let mut sent: HashMap<(&str, u32), usize> = HashMap::new();
    for event in &history.events {
        let task = (event.process.as_str(), event.task);
        match &event.what {
            What::Sent { key, fence, value } => {
                let op = if value.is_some() { Op::Write } else { Op::Open };
                sent.insert(task, all.len());
                let client = format!("{}/{}", event.process, event.task);
                all.push(Operation { fence: Some(*fence), value: *value, ..call(client, key, op, event.t, UNKNOWN) });
            }
            What::Opened { accepted: Some(accepted), .. } | What::Wrote { accepted: Some(accepted), .. } => {
                if let Some(sent) = sent.remove(&task).map(|index| &mut all[index]) {
                    sent.returned = Some(event.t);
                    sent.outcome = if *accepted { Outcome::Ok } else { Outcome::Refused };
                    if let What::Opened { value, .. } = event.what {
                        sent.value = value;
                    }
                }
            }
            What::Final { key, value } => {
                let read = call(HARNESS.to_owned(), key, Op::Read, event.t, (Some(event.t), Outcome::Ok));
                all.push(Operation { value: Some(*value), ..read });
            }
            What::Fault { kind, target, from } => {
                all.push(call(target.clone(), kind, Op::Fault, *from, (Some(event.t), Outcome::Ok)));
            }
            _ => {}
        }
    }
    all.sort_by_key(|operation| operation.invoke);
    all
}

const UNKNOWN: (Option<u64>, Outcome) = (None, Outcome::Unknown);

/// When and how a call of a lock ended, if its effect is known.
fn ended(answer: Option<(u64, How)>) -> (Option<u64>, Outcome) {
    match answer {
        Some((at, How::Done)) => (Some(at), Outcome::Ok),
        Some((at, How::Busy)) => (Some(at), Outcome::Busy),
        Some((at, How::Lost)) => (Some(at), Outcome::Lost),
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{KEY, Sample};

    fn lines(sample: Sample) -> Vec<(Op, u64, Option<u64>, Outcome)> {
        let all = operations("redis/1", &sample.history(), true);
        let ms = 1_000_000;
        all.iter().map(|one| (one.op, one.invoke / ms, one.returned.map(|at| at / ms), one.outcome)).collect()
    }

    #[test]
    fn a_hold_that_was_released_ends_with_the_release() {
        let held = [(Op::Acquire, 9, Some(10), Outcome::Ok), (Op::Release, 30, Some(31), Outcome::Ok)];
        assert_eq!(lines(Sample::default().held("a", 10, 30)), held);
    }

    #[test]
    fn a_hold_that_was_not_released_may_be_over_from_its_deadline_on() {
        let lapsed = Sample::default().asks(9, "a").granted(10, "a", 290, None).released(400, "a", How::Lost);
        assert_eq!(
            lines(lapsed)[1..],
            [(Op::Lost, 290, None, Outcome::Unknown), (Op::Release, 400, Some(401), Outcome::Lost),]
        );
    }

    #[test]
    fn what_a_killed_process_has_called_stays_open() {
        let sent = What::Sent { key: KEY.into(), fence: 7, value: Some(1) };
        let asked = Sample::default().asks(9, "a").granted(10, "a", 290, Some(7)).and(20, "a", sent).asks(25, "a");
        assert_eq!(
            lines(asked.and(30, "a", What::Killed))[1..],
            [
                (Op::Write, 20, None, Outcome::Unknown),
                (Op::Acquire, 25, None, Outcome::Unknown),
                (Op::Lost, 30, None, Outcome::Unknown),
            ]
        );
    }

    #[test]
    fn a_call_of_the_register_returns_with_what_was_read() {
        let opened = What::Opened { key: KEY.into(), fence: 7, accepted: Some(true), value: Some(3) };
        let sent = Sample::default().and(20, "a", What::Sent { key: KEY.into(), fence: 7, value: None });
        let all = operations("redis/1", &sent.and(21, "a", opened).history(), true);
        assert_eq!((all[0].op, all[0].returned, all[0].value), (Op::Open, Some(21_000_000), Some(3)));
    }
}
