//! [`History`]: attempts and claims, assembled from the events.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::event::{Event, How, Wanted, What};
use super::ranges::{Range, covered, shared};

/// An acquire and its outcome.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The process.
    pub process: String,
    /// The task in the process.
    pub task: u32,
    /// The lock.
    pub key: String,
    /// The request.
    pub wanted: Wanted,
    /// Just before the acquire was called.
    pub invoked: u64,
    /// When and how the acquire returned, with the error's text; `Done` is a grant.
    pub outcome: Option<(u64, How, String)>,
    /// The grant.
    pub claim: Option<Claim>,
}

/// A hold as its task sees it.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Just after the acquire returned.
    pub from: u64,
    /// The last deadline that the task saw.
    pub until: u64,
    /// The first look that found it ended.
    pub lapsed: Option<u64>,
    /// An upper bound of the deadline: the lease, or an extension, from the latest instant at which it can have started.
    pub bound: u64,
    /// The fencing token.
    pub fence: Option<u64>,
    /// Just before the release was called, or the hold was dropped.
    pub released: Option<u64>,
    /// Whether the hold was dropped, so that its release has no recorded outcome.
    pub dropped: bool,
    /// When and how the release returned.
    pub answer: Option<(u64, How)>,
    /// When the process was killed.
    pub killed: Option<u64>,
}

impl Claim {
    /// The earliest time at which the task may have stopped relying on the hold.
    #[must_use]
    pub fn end(&self) -> u64 {
        let ends = [self.lapsed, self.released, self.killed];
        ends.into_iter().flatten().fold(self.until, u64::min).max(self.from)
    }

    /// When the task was done with the lock, including the reply to its release.
    #[must_use]
    pub fn over(&self) -> Option<u64> {
        self.answer.map(|(at, _)| at).or(self.killed)
    }

    /// From the grant to its end.
    #[must_use]
    pub fn range(&self) -> (u64, u64) {
        (self.from, self.end())
    }
}

impl Attempt {
    /// When the acquire was over, by its return or the end of its process.
    #[must_use]
    pub fn returned(&self) -> Option<u64> {
        self.outcome.as_ref().map(|(at, ..)| *at)
    }

    /// When the timeout was over.
    #[must_use]
    pub fn gives_up(&self) -> u64 {
        self.invoked + crate::event::span(self.wanted.timeout())
    }

    /// How the acquire ended.
    #[must_use]
    pub fn how(&self) -> Option<How> {
        self.outcome.as_ref().map(|(_, how, _)| *how)
    }
}

/// A fault.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The kind of fault.
    pub kind: String,
    /// What it hit: a process, `server` or `wire`.
    pub target: String,
    /// From when to when.
    pub range: (u64, u64),
}

/// Everything that was recorded of one run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// All acquires, in the order of their calls.
    pub attempts: Vec<Attempt>,
    /// All faults.
    pub faults: Vec<Fault>,
    /// When the last fault was over.
    pub healed: Option<u64>,
    /// When each process was killed.
    pub killed: HashMap<String, u64>,
    /// The processes that ended normally.
    pub ended: HashMap<String, u64>,
    /// All events in the order of time.
    pub events: Vec<Event>,
    stalls: HashMap<String, Vec<Range>>,
    late: HashMap<(String, u32), Vec<Range>>,
}

impl History {
    /// Reads every file of a folder. The last line of a killed process may be incomplete.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        let mut events = Vec::new();
        for entry in std::fs::read_dir(folder).expect("the history's folder") {
            let path = entry.expect("a file of the history").path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                let text = std::fs::read_to_string(&path).expect("a history in UTF-8");
                events.extend(text.lines().filter_map(|line| serde_json::from_str::<Event>(line).ok()));
            }
        }
        Self::of(events)
    }

    /// Assembles events, which may be in any order.
    #[must_use]
    pub fn of(mut events: Vec<Event>) -> Self {
        // A stable sort keeps the order of what one task did within a nanosecond.
        events.sort_by_key(|event| event.t);
        let mut history = Self::default();
        let mut at: HashMap<(&str, u32, u32), usize> = HashMap::new();
        for event in &events {
            let id = |attempt: u32| (event.process.as_str(), event.task, attempt);
            match &event.what {
                What::Acquire { attempt, key, wanted } => {
                    at.insert(id(*attempt), history.attempts.len());
                    history.attempts.push(Attempt {
                        process: event.process.clone(),
                        task: event.task,
                        key: key.clone(),
                        wanted: *wanted,
                        invoked: event.t,
                        outcome: None,
                        claim: None,
                    });
                }
                What::Granted { attempt, .. }
                | What::Refused { attempt, .. }
                | What::Seen { attempt, .. }
                | What::Extended { attempt, .. }
                | What::Release { attempt, .. }
                | What::Released { attempt, .. } => {
                    if let Some(index) = at.get(&id(*attempt)) {
                        history.attempts[*index].learn(event);
                    }
                }
                What::Stalled { from } => {
                    history.stalls.entry(event.process.clone()).or_default().push((*from, event.t));
                }
                What::Late { from } => {
                    history.late.entry((event.process.clone(), event.task)).or_default().push((*from, event.t));
                }
                What::Fault { kind, target, from } => {
                    let fault = Fault { kind: kind.clone(), target: target.clone(), range: (*from, event.t) };
                    history.faults.push(fault);
                }
                What::Killed => {
                    history.killed.insert(event.process.clone(), event.t);
                }
                What::Ended => {
                    history.ended.insert(event.process.clone(), event.t);
                }
                What::Healed => history.healed = Some(event.t),
                _ => {}
            }
        }
        for attempt in &mut history.attempts {
            if let Some(claim) = &mut attempt.claim {
                claim.killed = history.killed.get(&attempt.process).copied();
            }
        }
        history.events = events;
        history
    }

    /// The attempts of each lock.
    #[must_use]
    pub fn by_key(&self) -> BTreeMap<&str, Vec<&Attempt>> {
        let mut keys: BTreeMap<&str, Vec<&Attempt>> = BTreeMap::new();
        for attempt in &self.attempts {
            keys.entry(&attempt.key).or_default().push(attempt);
        }
        keys
    }

    /// Every grant of a lock, in the order of grants.
    #[must_use]
    pub fn grants<'a>(&self, attempts: &[&'a Attempt]) -> Vec<(&'a Attempt, &'a Claim)> {
        let granted = attempts.iter().filter_map(|attempt| Some((*attempt, attempt.claim.as_ref()?)));
        let mut granted: Vec<_> = granted.collect();
        granted.sort_by_key(|(_, claim)| claim.from);
        granted
    }

    /// How long during `range` the process, or the harness, could not run.
    #[must_use]
    pub fn stalled(&self, process: &str, range: (u64, u64)) -> u64 {
        let of = |name: &str| self.stalls.get(name).into_iter().flatten().copied().collect::<Vec<_>>();
        let stopped = self.faults.iter().filter(|fault| fault.target == process).map(|fault| fault.range);
        covered(range, of(process).into_iter().chain(of(HARNESS)).chain(stopped))
    }

    /// How long during `range` the task was not polled although its process could run.
    #[must_use]
    pub fn late(&self, attempt: &Attempt, range: (u64, u64)) -> u64 {
        let of = [attempt.task, EVERY_TASK].map(|task| (attempt.process.clone(), task));
        covered(range, of.iter().filter_map(|of| self.late.get(of)).flatten().copied())
    }

    /// How often the task was not polled for `long` or longer, at least partly during `range`.
    #[must_use]
    pub fn times_late(&self, attempt: &Attempt, range: (u64, u64), long: u64) -> u32 {
        let late = self.late.get(&(attempt.process.clone(), attempt.task));
        let is_long = |late: &&Range| late.1 - late.0 >= long && shared(**late, range).is_some();
        late.into_iter().flatten().filter(is_long).map(|_| 1).sum()
    }

    /// The faults during `range`.
    pub fn faults_in(&self, range: (u64, u64)) -> impl Iterator<Item = &Fault> {
        // A range may be empty: an instant counts, too.
        self.faults.iter().filter(move |fault| shared((fault.range.0, fault.range.1 + 1), range).is_some())
    }

    /// Whether there was no fault during `range`, and all processes could run.
    #[must_use]
    pub fn is_calm(&self, range: (u64, u64)) -> bool {
        let stalled =
            || self.stalls.values().chain(self.late.values()).flatten().any(|stall| shared(*stall, range).is_some());
        let killed = || self.killed.values().any(|at| (range.0..range.1).contains(at));
        self.faults_in(range).next().is_none() && !stalled() && !killed()
    }

    /// The last event of the process itself.
    #[must_use]
    pub fn last_of(&self, process: &str) -> u64 {
        let own = |event: &&Event| event.process == process && event.what != What::Killed;
        self.events.iter().rev().find(own).map_or(0, |event| event.t)
    }

    /// The last instant of the history.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.events.last().map_or(0, |event| event.t)
    }
}

/// The name of the process that plays the faults.
pub const HARNESS: &str = "harness";

/// A `Late` event with this task number is about all tasks of its process.
pub const EVERY_TASK: u32 = 2000;

impl Attempt {
    fn learn(&mut self, event: &Event) {
        let at = event.t;
        let lease = self.wanted.expire * 1_000_000;
        match (&event.what, &mut self.claim) {
            (What::Refused { how, text, .. }, _) => self.outcome = Some((at, *how, text.clone())),
            (What::Granted { until, fence, .. }, claim) => {
                self.outcome = Some((at, How::Done, String::new()));
                let bound = if self.wanted.renew { u64::MAX } else { at + lease };
                *claim = Some(Claim {
                    from: at,
                    until: *until,
                    lapsed: None,
                    bound,
                    fence: *fence,
                    released: None,
                    dropped: false,
                    answer: None,
                    killed: None,
                });
            }
            (What::Seen { until: 0, .. }, Some(claim)) => claim.lapsed = claim.lapsed.or(Some(at)),
            (What::Seen { until, .. }, Some(claim)) => claim.until = claim.until.max(*until),
            // A failed extension may have been executed anyway.
            (What::Extended { lease, .. }, Some(claim)) => claim.bound = claim.bound.max(at + lease * 1_000_000),
            (What::Release { dropped, .. }, Some(claim)) => (claim.released, claim.dropped) = (Some(at), *dropped),
            (What::Released { how, .. }, Some(claim)) => claim.answer = Some((at, *how)),
            _ => {}
        }
    }
}
