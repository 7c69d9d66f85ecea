//! [`Outcome`] and [`Tally`]: the result of one task, and of all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{Failure, Waits};

/// The result of one task. A worker process prints it as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did its work, after waiting this long for the lock; `None` when it needed no lock.
    Done(Option<Duration>),
    /// It was refused in the expected way, with this answer.
    Refused(String),
    /// It failed.
    Failed(String),
}

impl Outcome {
    /// The outcome of an answer: how long the task waited for the lock, if it needed it, or why it failed.
    #[must_use]
    pub fn of(answer: Result<impl Into<Option<Duration>>, Failure>) -> Self {
        match answer {
            Ok(waited) => Self::Done(waited.into()),
            Err(failure) => Self::Failed(failure.to_string()),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(Some(waited)) => write!(f, "waited {}", waited.as_nanos()),
            Self::Done(None) => f.write_str("done "),
            Self::Refused(answer) => write!(f, "refused {}", answer.replace('\n', " ")),
            Self::Failed(reason) => write!(f, "failed {}", reason.replace('\n', " ")),
        }
    }
}

impl FromStr for Outcome {
    type Err = Failure;

    fn from_str(line: &str) -> Result<Self, Failure> {
        match line.split_once(' ') {
            Some(("waited", nanos)) => Ok(Self::Done(Some(Duration::from_nanos(nanos.parse()?)))),
            Some(("done", _)) => Ok(Self::Done(None)),
            Some(("refused", answer)) => Ok(Self::Refused(answer.to_owned())),
            Some(("failed", reason)) => Ok(Self::Failed(reason.to_owned())),
            _ => Err(format!("a worker process said {line:?}").into()),
        }
    }
}

/// The results of all tasks of a run.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// How many did their work.
    pub done: u32,
    /// How many were refused, by the answer they got.
    pub refused: BTreeMap<String, u32>,
    /// How many failed, by reason.
    pub failed: BTreeMap<String, u32>,
    /// How long the tasks that did their work waited for the lock.
    pub waits: Waits,
    /// From the start of all tasks to the end of the last.
    pub took: Duration,
}

impl Tally {
    /// How many were refused.
    #[must_use]
    pub fn refusals(&self) -> u32 {
        self.refused.values().sum()
    }

    /// How many failed.
    #[must_use]
    pub fn errors(&self) -> u32 {
        self.failed.values().sum()
    }

    pub(crate) fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Done(waited) => {
                self.done += 1;
                self.waits.extend(waited);
            }
            Outcome::Refused(answer) => *self.refused.entry(answer).or_default() += 1,
            Outcome::Failed(reason) => *self.failed.entry(reason).or_default() += 1,
        }
    }

    /// Counts the tasks that never answered as errors: they panicked, or their process died.
    pub(crate) fn close(&mut self, tasks: u32) {
        let silent = tasks.saturating_sub(self.done + self.refusals() + self.errors());
        if silent > 0 {
            self.failed.insert("ended without an answer".to_owned(), silent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_survives_the_pipe() -> Result<(), Failure> {
        let outcomes = [
            Outcome::Done(Some(Duration::from_nanos(1_234))),
            Outcome::Done(None),
            Outcome::Refused("busy, try again".to_owned()),
            Outcome::Failed("no such item".to_owned()),
        ];
        for outcome in outcomes {
            assert_eq!(outcome.to_string().parse::<Outcome>()?, outcome);
        }
        Ok(())
    }

    #[test]
    fn a_task_without_an_answer_is_an_error() {
        let mut tally = Tally::default();
        tally.count(Outcome::Done(None));
        tally.close(3);
        assert_eq!(tally.errors(), 2);
    }
}
