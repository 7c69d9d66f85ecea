//! [`History`]: the events put together to attempts and claims.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::event::{Event, How, Wanted, What};
use super::ranges::{Range, covered, shared};

/// One acquire and what came of it.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The process.
    pub process: String,
    /// The task of it.
    pub task: u32,
    /// The lock.
    pub key: String,
    /// What was asked for.
    pub wanted: Wanted,
    /// Just before the acquire was called.
    pub invoked: u64,
    /// When and how it returned, with the error's text; `Done` is a grant.
    pub outcome: Option<(u64, How, String)>,
    /// What was granted.
    pub claim: Option<Claim>,
}

/// What a task may believe from a grant on.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Just after the acquire returned.
    pub from: u64,
    /// The latest deadline that was seen.
    pub until: u64,
    /// The first look that found it ended.
    pub lapsed: Option<u64>,
    /// A deadline that the hold can't have passed: its lease, or an extension, from the latest instant it can start.
    pub bound: u64,
    /// The fencing token.
    pub fence: Option<u64>,
    /// Just before the release was called, or the hold dropped.
    pub released: Option<u64>,
    /// It was dropped: nobody was there to be told how that went.
    pub dropped: bool,
    /// When and how the release returned.
    pub answer: Option<(u64, How)>,
    /// When its process was killed.
    pub killed: Option<u64>,
}

impl Claim {
    /// When the task stopped believing, as far as is known for sure.
    #[must_use]
    pub fn end(&self) -> u64 {
        let ends = [self.lapsed, self.released, self.killed];
        ends.into_iter().flatten().fold(self.until, u64::min).max(self.from)
    }

    /// When the task was done with the lock, release answered included.
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
    /// When the acquire was over, by its return or its process's end.
    #[must_use]
    pub fn returned(&self) -> Option<u64> {
        self.outcome.as_ref().map(|(at, ..)| *at)
    }

    /// When its time was up.
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

/// A fault that was in force.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What it was.
    pub kind: String,
    /// Whom it hit: a process, `server` or `wire`.
    pub target: String,
    /// When.
    pub range: (u64, u64),
}

/// All that is known of one run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Every acquire, in the order of their calls.
    pub attempts: Vec<Attempt>,
    /// Every fault.
    pub faults: Vec<Fault>,
    /// When no fault was in force any more.
    pub healed: Option<u64>,
    /// When each process was killed.
    pub killed: HashMap<String, u64>,
    /// Processes that ended as they were told to.
    pub ended: HashMap<String, u64>,
    /// Everything, in the order of time.
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

    /// Puts events together, in whatever order they come.
    #[must_use]
    pub fn of(mut events: Vec<Event>) -> Self {
        // Stable: what one task did within a nanosecond stays in its order.
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

    /// For how long during `range` the process, or the harness, could not run.
    #[must_use]
    pub fn stalled(&self, process: &str, range: (u64, u64)) -> u64 {
        let of = |name: &str| self.stalls.get(name).into_iter().flatten().copied().collect::<Vec<_>>();
        let stopped = self.faults.iter().filter(|fault| fault.target == process).map(|fault| fault.range);
        covered(range, of(process).into_iter().chain(of(HARNESS)).chain(stopped))
    }

    /// For how long during `range` the task was not polled although it could run.
    #[must_use]
    pub fn late(&self, attempt: &Attempt, range: (u64, u64)) -> u64 {
        let of = [attempt.task, EVERY_TASK].map(|task| (attempt.process.clone(), task));
        covered(range, of.iter().filter_map(|of| self.late.get(of)).flatten().copied())
    }

    /// How often the task was not polled for `long` or longer, of which a part was during `range`.
    #[must_use]
    pub fn times_late(&self, attempt: &Attempt, range: (u64, u64), long: u64) -> u32 {
        let late = self.late.get(&(attempt.process.clone(), attempt.task));
        let is_long = |late: &&Range| late.1 - late.0 >= long && shared(**late, range).is_some();
        late.into_iter().flatten().filter(is_long).map(|_| 1).sum()
    }

    /// The faults that hit anybody during `range`.
    pub fn faults_in(&self, range: (u64, u64)) -> impl Iterator<Item = &Fault> {
        // An instant counts as well as a stretch.
        self.faults.iter().filter(move |fault| shared((fault.range.0, fault.range.1 + 1), range).is_some())
    }

    /// Whether nothing was done to anybody during `range`, and everybody could run.
    #[must_use]
    pub fn is_calm(&self, range: (u64, u64)) -> bool {
        let stalled =
            || self.stalls.values().chain(self.late.values()).flatten().any(|stall| shared(*stall, range).is_some());
        let killed = || self.killed.values().any(|at| (range.0..range.1).contains(at));
        self.faults_in(range).next().is_none() && !stalled() && !killed()
    }

    /// The last that a process did by itself, as far as is known.
    #[must_use]
    pub fn last_of(&self, process: &str) -> u64 {
        let own = |event: &&Event| event.process == process && event.what != What::Killed;
        self.events.iter().rev().find(own).map_or(0, |event| event.t)
    }

    /// The last instant that is known of.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.events.last().map_or(0, |event| event.t)
    }
}

/// The process that makes the faults.
pub const HARNESS: &str = "harness";

/// The task under whose number is written down that any task of its process may have been polled late.
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
            // One that failed may have been done all the same.
            (What::Extended { lease, .. }, Some(claim)) => claim.bound = claim.bound.max(at + lease * 1_000_000),
            (What::Release { dropped, .. }, Some(claim)) => (claim.released, claim.dropped) = (Some(at), *dropped),
            (What::Released { how, .. }, Some(claim)) => claim.answer = Some((at, *how)),
            _ => {}
        }
    }
}
