//! [`Again`]: whether a failed command is sent again, on one server and in a cluster.
//!
//! A connection may break under a command, several times in a row. A server may refuse writes while the next master is already behind the
//! same address. Neither is an answer, so the command is sent again within the time that one answer may take. A caller with more time asks
//! again itself. So every command may run twice, with the same effect as once, and [`Called::repeated`] says that it may have.

use std::time::Duration;

use tokio::time::sleep;

use super::{Called, Link};
use crate::clock::{Deadline, Moment};
use crate::failure::{CallError, Reach};

/// The second and the longest pause. The first retry follows at once.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(25));

impl Link {
    /// Whether to send a command again after a try with this outcome, which began at `sent`.
    #[inline]
    pub(super) fn is_sent_again(&self, outcome: &Result<Called, CallError>, sent: Moment) -> bool {
        match outcome {
            Ok(called) => self.purpose.refusal(&called.value).is_some_and(|code| self.is_of_former_master(code, sent)),
            Err(error) => self.may_pass(error, sent),
        }
    }

    /// Whether to retry after this error.
    pub(crate) fn may_pass(&self, error: &CallError, sent: Moment) -> bool {
        match error {
            CallError::Failed(error) => {
                error.is_io_error() || error.code().is_some_and(|code| self.is_of_former_master(code, sent))
            }
            // Where other servers are asked the same, there is no need to wait for this one.
            CallError::Unsent(reason) => {
                reason.is_of_a_restart() && !self.purpose.has_others() && self.is_briefly_away()
            }
            _ => false,
        }
    }

    /// Whether the connection was left because of a refusal with this code. The same refusal on a new connection is final.
    fn is_of_former_master(&self, code: &str, sent: Moment) -> bool {
        mutant!(RefusalIsLast => return false);
        let is_such = matches!(code, "READONLY" | "MASTERDOWN" | "LOADING" | "NOREPLICAS");
        // By now there is another connection, or none.
        is_such && (!self.is_connected() || self.was_made_after(sent))
    }

    /// Whether the connection may be gone just for a moment. Once the server has been away for the command timeout, every caller fails at
    /// once.
    fn is_briefly_away(&self) -> bool {
        self.state.lock().down_since.is_none_or(|since| since.elapsed() < self.common.command_timeout)
    }
}

/// What became of the tries of one command.
#[derive(Debug)]
pub(crate) struct Again {
    /// No further try begins after this.
    end: Deadline,
    pause: Duration,
    was_sent: bool,
    /// Whether a try may have taken effect, and its answer is lost.
    may_be_done: bool,
    /// What a server said. The last try may be cut short, and then its error explains less.
    refused: Option<CallError>,
}

impl Again {
    pub(crate) fn new(deadline: Deadline, answer_time: Duration) -> Self {
        let end = deadline.min_at(Deadline::new(deadline.start(), answer_time), deadline.start());
        Self { end, pause: Duration::ZERO, was_sent: false, may_be_done: false, refused: None }
    }

    /// Until when another try may begin.
    pub(crate) fn end(&self) -> Deadline {
        self.end
    }

    /// Notes a failed try.
    pub(crate) fn note(&mut self, error: &CallError) {
        let reach = error.reach();
        self.was_sent |= reach != Reach::Unsent;
        mutant!(RepetitionBeforeMoveForgotten => return);
        self.may_be_done |= reach == Reach::Unanswered;
    }

    /// Notes a refusal that explains more than a later silence would.
    pub(crate) fn note_refusal(&mut self, refusal: CallError) {
        self.refused = Some(refusal);
    }

    pub(crate) fn was_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Waits before the next try, each time a little longer. Returns whether there is time for that try.
    pub(crate) async fn pause(&mut self) -> bool {
        let pause = self.pause;
        mutant!(SentTwice => if !pause.is_zero() {
            return false;
        });
        self.pause = (pause * 2).clamp(PAUSES.0, PAUSES.1);
        if self.end.remaining() <= pause {
            return false;
        }
        if !pause.is_zero() {
            sleep(pause).await;
        }
        true
    }

    /// The outcome of the last try, with what the earlier ones add to it.
    pub(crate) fn conclude(self, outcome: Result<Called, CallError>) -> Result<Called, CallError> {
        match outcome {
            Ok(called) => Ok(Called { repeated: self.may_be_done, ..called }),
            Err(CallError::UnknownScript { .. }) => Err(CallError::UnknownScript { repeated: self.may_be_done }),
            Err(error) => {
                let error = match self.refused {
                    Some(refused) if error.is_out_of_time() => refused.in_place_of(&error),
                    _ => error,
                };
                // The last try may not have been sent, but an earlier one was.
                Err(if self.was_sent { error.after_sending() } else { error })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_command_is_sent_again_at_once_and_then_ever_later_and_not_beyond_the_end() {
        let minute = Duration::from_mins(1);
        let (mut again, start) = (Again::new(Deadline::after(minute), minute), Instant::now());
        for passed in [0, 5, 15, 35, 60, 85] {
            assert!(again.pause().await);
            assert!(start.elapsed().abs_diff(Duration::from_millis(passed)) < Duration::from_millis(6), "{passed}");
        }
        again.end = Deadline::after(PAUSES.1 / 2);
        assert!(!again.pause().await);
        assert!(start.elapsed() < Duration::from_millis(91), "{:?}", start.elapsed());
    }

    #[test]
    fn no_other_try_begins_when_an_answer_would_have_had_its_time() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_mins(1));
        assert!(Again::new(Deadline::after(minute), second).end().remaining() <= second);
        assert!(Again::new(Deadline::after(second), minute).end().remaining() <= second);
    }
}
