//! [`Votes`]: counts what the servers say about one lock.

use std::time::Duration;

use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::store::{Reach, Retry, StoreError};

/// The answers so far: yes, no and the failures, each with its server's number.
#[derive(Debug)]
pub(super) struct Votes<Y, N> {
    servers: usize,
    pub(super) yes: Vec<(usize, Y)>,
    pub(super) no: Vec<(usize, N)>,
    pub(super) failed: Vec<(usize, StoreError)>,
    /// How many of the failures are not a server's fault: the verb arrived when its time was over.
    pub(super) late: usize,
}

/// What the answers so far decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Open,
    Yes,
    No,
    /// Too few servers have answered or will answer: it can't be decided.
    Unknown,
}

impl<Y, N> Votes<Y, N> {
    pub(super) fn new(servers: usize) -> Self {
        Self { servers, yes: Vec::new(), no: Vec::new(), failed: Vec::new(), late: 0 }
    }

    pub(super) fn majority(&self) -> usize {
        self.servers / 2 + 1
    }

    pub(super) fn lacks(&self, server: usize) -> bool {
        let answered = self.yes.iter().map(|(number, _)| number).chain(self.no.iter().map(|(number, _)| number));
        !answered.chain(self.failed.iter().map(|(number, _)| number)).any(|number| *number == server)
    }

    /// Whether enough servers grant, when `hopeful` others may answer soon. A server that failed grants nothing. But only a majority can
    /// say that another token owns the lock, and a refusal waits for all servers that may answer soon: an ask that all servers refuse need
    /// not be withdrawn.
    pub(super) fn granted(&self, hopeful: usize) -> Verdict {
        let majority = self.majority();
        if self.yes.len() >= majority {
            Verdict::Yes
        } else if self.failed.len() > self.servers - majority {
            Verdict::Unknown
        } else if hopeful == 0 && self.yes.len() + self.no.len() >= majority {
            Verdict::No
        } else {
            Verdict::Open
        }
    }

    /// Whether the token owns the lock on a majority. It may own the lock on a server that failed.
    pub(super) fn owned(&self) -> Verdict {
        let majority = self.majority();
        let pending = self.servers.saturating_sub(self.yes.len() + self.no.len() + self.failed.len());
        let without = self.servers - majority + 1;
        let may_turn = self.yes.len() + pending >= majority || self.no.len() + pending >= without;
        if self.yes.len() >= majority {
            Verdict::Yes
        } else if self.no.len() >= without {
            Verdict::No
        } else if may_turn {
            Verdict::Open
        } else {
            Verdict::Unknown
        }
    }

    /// The error of a verb that too few servers answered. `name` returns the name of a server.
    pub(super) fn too_few(&self, name: impl Fn(usize) -> String) -> StoreError {
        let needed = self.majority();
        let problem = |(server, error): &(usize, StoreError)| error.problem.clone().of(&name(*server)).to_string();
        let problems: Vec<_> = self.failed.iter().map(problem).collect();
        let (failed, servers, problems) = (self.failed.len(), self.servers, problems.join("; "));
        let text = format!("{failed} of {servers} servers failed, and {needed} have to agree ({problems})");
        let refusals = self.failed.iter().filter(|(_, error)| error.retry == Retry::Never).count();
        let retry = if refusals > servers - needed { Retry::Never } else { Retry::Later };
        // With more time there might have been a majority.
        let late = self.failed.iter().filter(|(_, error)| error.out_of_time).count();
        let out_of_time = late > 0 && self.failed.len() - late <= servers - needed;
        let problem = match self.failed.first() {
            Some((_, error)) => BackendError::caused_by(text, error.problem.clone()),
            None => BackendError::new(text),
        };
        StoreError { retry, out_of_time, ..StoreError::later(problem) }
    }

    /// How far a failed verb got. It certainly has no effect only if it was sent to no server.
    pub(super) fn reach(&self) -> Reach {
        let is_unsent = |(_, error): &(usize, StoreError)| error.reach == Reach::Unsent;
        if self.failed.len() == self.servers && self.failed.iter().all(is_unsent) {
            Reach::Unsent
        } else {
            Reach::Unanswered
        }
    }

    /// The end of the lease on a majority. With the ends in descending order it is the third of five, or the second of three.
    pub(super) fn until(&self, of: impl Fn(&Y) -> Deadline) -> Deadline {
        let now = Moment::now();
        let mut untils: Vec<Deadline> = self.yes.iter().map(|(_, yes)| of(yes)).collect();
        untils.sort_by_key(|until| std::cmp::Reverse(until.remaining_at(now)));
        let counts = untils.get(self.majority() - 1);
        mutant!(LatestEndCounts => return *untils.first().or(counts).unwrap_or(&Deadline::new(now, Duration::ZERO)));
        counts.copied().unwrap_or_else(|| Deadline::new(now, Duration::ZERO))
    }
}

impl Votes<(), ()> {
    pub(super) fn count(&mut self, server: usize, is_yes: bool) {
        if is_yes { &mut self.yes } else { &mut self.no }.push((server, ()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(servers: usize, yes: usize, no: usize, failed: usize) -> Votes<(), ()> {
        let mut votes = Votes::new(servers);
        votes.yes = (0..yes).map(|number| (number, ())).collect();
        votes.no = (yes..yes + no).map(|number| (number, ())).collect();
        for number in yes + no..yes + no + failed {
            votes.failed.push((number, StoreError::no_answer()));
        }
        votes
    }

    /// All counts of votes among this many servers.
    fn all(servers: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let counts = move || 0..=servers;
        let each =
            counts().flat_map(move |yes| counts().flat_map(move |no| counts().map(move |failed| (yes, no, failed))));
        each.filter(move |(yes, no, failed)| yes + no + failed <= servers)
    }

    #[test]
    fn a_decision_stays_whatever_is_answered_later_and_all_answers_decide() {
        for servers in 3..=7 {
            for (yes, no, failed) in all(servers) {
                let votes = of(servers, yes, no, failed);
                let pending = servers - yes - no - failed;
                let (granted, owned) = (votes.granted(pending), votes.owned());
                assert!(pending > 0 || (granted != Verdict::Open && owned != Verdict::Open), "{votes:?}");
                for (more_yes, more_no, more_failed) in all(servers).filter(|(a, b, c)| a + b + c == pending) {
                    let later = of(servers, yes + more_yes, no + more_no, failed + more_failed);
                    assert!(owned == Verdict::Open || owned == later.owned(), "{votes:?} {later:?}");
                    // A majority that could not be asked is reported at once, even if the last server would refuse.
                    assert!(granted == Verdict::Open || granted == later.granted(0), "{votes:?} {later:?}");
                }
                assert_eq!(granted == Verdict::Yes, yes * 2 > servers);
                assert_eq!(owned == Verdict::Yes, yes * 2 > servers);
            }
        }
    }
}
