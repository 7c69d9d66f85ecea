//! [`Reel`]: a stretch of a recorded run as a sequence of steps.

use std::collections::BTreeSet;

use history::claims::Claim;
use history::event::{Change, How, NEVER, What};
use history::owners::{End, Owned};
use history::{Attempt, History, Violation};
use serde::Serialize;

use crate::fault::Fault;

/// What happened to one lock in a stretch of a run. Every step is an event of the history, or the instant at which a time ended
/// that an event named: a hold's deadline, or a lease's end.
#[derive(Clone, Debug, Serialize)]
pub struct Reel {
    /// The processes that used the lock; the victim is the first.
    pub processes: Vec<String>,
    /// What happened, in the order of time.
    pub steps: Vec<Step>,
    /// The checker's finding; empty if there is none.
    pub verdict: String,
    /// The most grants that went to tasks that asked later than a waiting task.
    pub passed_over: usize,
}

/// One event, and the state after it.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// When, in microseconds from the first step.
    pub at: u64,
    /// Where: a process, `server`, `store` or `fault`.
    pub place: String,
    /// What it is.
    pub kind: Kind,
    /// In words.
    pub text: String,
    /// The processes that believe that they hold the lock.
    pub holders: BTreeSet<String>,
    /// The process whose token is on the server.
    pub owner: Option<String>,
    /// Whether it is a part of the breach.
    pub is_broken: bool,
    /// How many steps just before it are left out.
    pub left_out: usize,
}

/// What a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it; what happens at one instant comes in this order")]
pub enum Kind {
    Fault,
    Asks,
    GivesBack,
    /// A write arrives at the store.
    Writes,
    /// A write arrives at the store after its sender's lease, and the store does not notice.
    Overwrites,
    /// A write arrives after its sender's lease, and the store refuses it.
    Refused,
    Server,
    Granted,
    Told,
    Deadline,
    Killed,
    Left,
}

/// The most steps of a reel.
const MOST: usize = 40;
/// How many steps before and after the breach belong to it.
const AROUND: usize = 3;

impl Reel {
    /// The stretch that shows a violation.
    pub(crate) fn of(history: &History, violation: &Violation) -> Self {
        let film = Film::new(history, violation.key.as_deref().unwrap_or(FIRST));
        let (from, to) = violation.range;
        // It begins with the ask of the process that held the lock at that time, and with the lease of that time. A release on its way
        // at that time belongs to it, too.
        let ends = |claim: &Claim| claim.answer.map_or(claim.end(), |(at, _)| claim.end().max(at));
        let held = film.claims().filter(|(_, claim)| claim.from <= to && ends(claim) > from);
        let held = held.map(|(attempt, _)| attempt.invoked);
        let owned = film.leases.iter().filter(|lease| film.begins(lease) <= from && film.ends(lease) > from);
        let start = held.chain(owned.map(|lease| film.begins(lease))).fold(from, u64::min);
        let first = film.index(start).saturating_sub(AROUND);
        // So does a late write.
        let late = film.marks.iter().filter(|mark| mark.kind == Kind::Overwrites && mark.at > from).map(|mark| mark.at);
        let last = film.index(late.fold(to, u64::max).saturating_add(1)) + AROUND;
        film.reel(first, last, Some(violation))
    }

    /// For a run without a finding: the stretch that begins when the victim asks, before the fault hits it. Without a fault it begins when
    /// the task asks that was passed over most often.
    pub(crate) fn kept(history: &History, fault: Fault) -> Self {
        let film = Film::new(history, FIRST);
        let victim = || film.own().filter(|attempt| attempt.process == VICTIM);
        let shown = match fault {
            Fault::Calm => film.own().max_by_key(|attempt| film.passed_over(attempt)),
            Fault::HolderKilled | Fault::WaiterKilled => victim().last(),
            _ => victim().next(),
        };
        let first = film.index(shown.map_or(0, |attempt| attempt.invoked)).saturating_sub(AROUND);
        let late = film.marks.iter().position(|mark| mark.kind == Kind::Refused && fault.delays_a_write());
        film.reel(first, late.map_or(0, |late| late + AROUND).max(first + MOST), None)
    }
}

/// The lock, and the victim, of a reel that does not show a violation of another lock.
const FIRST: &str = "museum:0";
const VICTIM: &str = "victim0";

/// All that happened to one lock.
struct Film<'a> {
    history: &'a History,
    key: &'a str,
    leases: Vec<Owned>,
    marks: Vec<Mark>,
}

impl<'a> Film<'a> {
    fn new(history: &'a History, key: &'a str) -> Self {
        let leases = history.owners().get(key).cloned().unwrap_or_default();
        let mut film = Self { history, key, leases, marks: Vec::new() };
        let mut marks = film.marks();
        marks.sort_by_key(|mark| (mark.at, mark.kind));
        film.marks = marks;
        film
    }

    fn own(&self) -> impl Iterator<Item = &'a Attempt> {
        let key = self.key;
        self.history.attempts.iter().filter(move |attempt| attempt.key == key)
    }

    fn claims(&self) -> impl Iterator<Item = (&'a Attempt, &'a Claim)> {
        self.own().filter_map(|attempt| Some((attempt, attempt.claim.as_ref()?)))
    }

    /// How many grants went to tasks that asked later.
    fn passed_over(&self, waiter: &Attempt) -> usize {
        let until = waiter.returned().unwrap_or(waiter.invoked);
        self.claims().filter(|(other, claim)| other.invoked > waiter.invoked && claim.from < until).count()
    }

    /// The number of the first step that is not before an instant.
    fn index(&self, at: u64) -> usize {
        self.marks.partition_point(|mark| mark.at < at)
    }

    fn reel(&self, first: usize, last: usize, violation: Option<&Violation>) -> Reel {
        let mut steps: Vec<_> = self.marks.iter().take(last).skip(first).map(|mark| self.step(mark)).collect();
        if let Some(violation) = violation {
            mark_broken(&mut steps, violation.range);
        }
        for step in &mut steps {
            step.is_broken |= step.kind == Kind::Overwrites;
        }
        shorten(&mut steps);
        let start = steps.first().map_or(0, |step| step.at);
        for step in &mut steps {
            step.at = (step.at - start) / 1000;
        }
        let processes: BTreeSet<_> = self.own().map(|attempt| attempt.process.clone()).collect();
        Reel {
            steps,
            // In the order of names the victim would be the last.
            processes: processes.into_iter().rev().collect(),
            verdict: violation.map(|violation| violation.text.clone()).unwrap_or_default(),
            passed_over: self.own().map(|attempt| self.passed_over(attempt)).max().unwrap_or_default(),
        }
    }

    /// A step whose time is that of the history.
    fn step(&self, mark: &Mark) -> Step {
        Step {
            at: mark.at,
            place: mark.place.clone(),
            kind: mark.kind,
            text: mark.text.clone(),
            holders: self.holders(mark.at),
            owner: self.owner(mark),
            is_broken: false,
            left_out: 0,
        }
    }

    fn holders(&self, at: u64) -> BTreeSet<String> {
        let holds = self.claims().filter(|(_, claim)| claim.from <= at && at < claim.end());
        holds.map(|(attempt, _)| attempt.process.clone()).collect()
    }

    fn owner(&self, mark: &Mark) -> Option<String> {
        let is_it = |lease: &&Owned| self.begins(lease) <= mark.at && mark.at < self.ends(lease);
        self.leases.iter().rev().find(is_it).map(name)
    }

    /// When a lease began: in the server's record, before the message about the grant.
    fn begins(&self, lease: &Owned) -> u64 {
        let told = self.claims().filter(|(attempt, _)| lease.is_of(attempt)).map(|(_, claim)| claim.from);
        told.filter(|at| lease.from.0 < *at).map(|at| at - 1).fold(lease.from.1, u64::min)
    }

    /// When it ended: before the answer to the release that ended it.
    fn ends(&self, lease: &Owned) -> u64 {
        let next = || self.leases.iter().find(|next| next.from == lease.to).map(|next| self.begins(next));
        match lease.end {
            End::Open | End::Forgotten => lease.to.1,
            // The server's record is exact to a millisecond.
            End::Expired => next().map_or(lease.until, |next| next.min(lease.until)),
            End::Replaced => next().unwrap_or(lease.to.1),
            End::Deleted => {
                let told = self.claims().filter_map(|(_, claim)| Some(claim.answer?.0));
                told.filter(|at| lease.to.0 < *at).map(|at| at - 1).fold(lease.to.1, u64::min)
            }
        }
    }

    fn marks(&self) -> Vec<Mark> {
        let mut marks = Vec::new();
        self.own().for_each(|attempt| self.tell_attempt(attempt, &mut marks));
        self.leases.iter().for_each(|lease| self.tell_lease(lease, &mut marks));
        self.tell_writes(&mut marks);
        for event in &self.history.events {
            match &event.what {
                // A victim's fault is recorded under the number of its lock.
                What::Fault { from, .. } if self.key.ends_with(&event.task.saturating_sub(2).to_string()) => {
                    marks.push(Mark::new(*from, "fault", Kind::Fault, "begins"));
                    marks.push(Mark::new(event.t, "fault", Kind::Fault, "is over"));
                }
                What::Killed if self.own().any(|attempt| attempt.process == event.process) => {
                    marks.push(Mark::new(event.t, &event.process, Kind::Killed, "is killed"));
                }
                What::Left { thing, before, after } if after > before => {
                    let text = format!("leaves {} {thing} behind", after - before);
                    marks.push(Mark::new(event.t, &event.process, Kind::Left, text));
                }
                What::Changed { key, to: Change::Ends { until }, .. } if key == self.key => {
                    let text = format!("the lease now ends {}", from_now(event.t, *until));
                    marks.push(Mark::new(event.t, SERVER, Kind::Server, text));
                }
                _ => {}
            }
        }
        marks
    }

    fn tell_attempt(&self, attempt: &Attempt, marks: &mut Vec<Mark>) {
        let mut tell = |at, kind, text: String| marks.push(Mark::new(at, &attempt.process, kind, text));
        tell(attempt.invoked, Kind::Asks, format!("asks, for {} ms", attempt.wanted.timeout));
        let Some(claim) = &attempt.claim else {
            if let Some((at, how, _)) = &attempt.outcome {
                tell(*at, Kind::Told, format!("is told: {}", words(*how)));
            }
            return;
        };
        let mut told = vec!["has the lock".to_owned()];
        if claim.until != NEVER {
            told.push(format!("its deadline is {}", from_now(claim.from, claim.until)));
        }
        if let Some(fence) = claim.fence {
            told.push(format!("fencing token …{:09}", fence % 1_000_000_000));
        }
        let waits = |other: &&Attempt| {
            other.invoked < attempt.invoked && other.returned().is_none_or(|returned| returned > claim.from)
        };
        if let Some(other) = self.own().filter(|other| !self.history.killed.contains_key(&other.process)).find(waits) {
            told.push(format!("{} has waited for longer", other.process));
        }
        tell(claim.from, Kind::Granted, told.join(", "));
        let is_over = |at: u64| [claim.released, claim.killed].into_iter().flatten().any(|end| end <= at);
        if claim.until != NEVER && !is_over(claim.until) {
            tell(claim.until, Kind::Deadline, "its deadline: it holds no more".to_owned());
        }
        let is_alive = |at: &u64| claim.killed.is_none_or(|killed| *at < killed);
        if let Some(at) = claim.released.filter(is_alive) {
            tell(at, Kind::GivesBack, "gives it back".to_owned());
        }
        if let Some((at, how)) = claim.answer {
            tell(at, Kind::Told, format!("is told: {}", words(how)));
        }
    }

    /// The process that deleted the key of a lease that its owner had not released: by a release without an answer until then.
    fn deleted_by(&self, lease: &Owned, at: u64) -> String {
        let is_late = |claim: &Claim| {
            let is_open = claim.answer.is_none_or(|(told, how)| told >= at || how != How::Done);
            claim.released.is_some_and(|released| released < at) && is_open
        };
        let late = self.claims().filter(|(attempt, claim)| !lease.is_of(attempt) && is_late(claim));
        match late.max_by_key(|(_, claim)| claim.released) {
            Some((attempt, _)) => format!(" by a release of {}", attempt.process),
            None => ", and not by itself".to_owned(),
        }
    }

    fn tell_lease(&self, lease: &Owned, marks: &mut Vec<Mark>) {
        let begins = self.begins(lease);
        let mut tell = |at, text: String| marks.push(Mark::new(at, SERVER, Kind::Server, text));
        let way = if lease.next { "passed on to" } else { "written by" };
        let end = if lease.until == NEVER { "never".to_owned() } else { from_now(begins, lease.until) };
        tell(begins, format!("key {way} {}, its lease ends {end}", name(lease)));
        match lease.end {
            End::Expired => tell(self.ends(lease), format!("the lease of {} ends by itself", name(lease))),
            End::Deleted => {
                let at = self.ends(lease);
                let is_held =
                    |claim: &Claim| claim.killed.is_none() && claim.released.is_none_or(|released| released > at);
                let mut own = self.claims().filter(|(attempt, claim)| lease.is_of(attempt) && claim.from < at);
                let by = if own.any(|(_, claim)| is_held(claim)) { self.deleted_by(lease, at) } else { String::new() };
                tell(at, format!("key of {} deleted{by}", name(lease)));
            }
            End::Open | End::Replaced | End::Forgotten => {}
        }
    }
}

/// A write that arrived at the store.
#[derive(Clone, Copy)]
struct Delivered<'a> {
    at: u64,
    by: &'a str,
    fence: Option<u64>,
    is_accepted: bool,
}

impl Film<'_> {
    /// The victim's write, and the one before it.
    fn tell_writes(&self, marks: &mut Vec<Mark>) {
        let delivered = self.history.events.iter().filter_map(|event| match &event.what {
            What::Delivered { key, fence, accepted } if key == self.key => {
                Some(Delivered { at: event.t, by: &event.process, fence: *fence, is_accepted: *accepted })
            }
            _ => None,
        });
        let delivered: Vec<_> = delivered.collect();
        let Some(place) = delivered.iter().position(|write| write.by.starts_with("victim")) else { return };
        let (before, own) = delivered.split_at(place);
        let before = before.last();
        let mut tell = |at, kind, text: String| marks.push(Mark::new(at, STORE, kind, text));
        if let Some(before) = before {
            tell(before.at, Kind::Writes, format!("{} writes{}", before.by, numbered(before.fence)));
        }
        for write in own.iter().take(1) {
            let has_it = |lease: &Owned| {
                name(lease) == write.by && self.begins(lease) <= write.at && write.at < self.ends(lease)
            };
            let text = format!("the write of {} comes, sent while it held{}", write.by, numbered(write.fence));
            if self.leases.iter().any(has_it) {
                tell(write.at, Kind::Writes, text);
            } else if write.is_accepted {
                let lost = before.map_or_else(String::new, |before| format!(": what {} wrote is lost", before.by));
                tell(write.at, Kind::Overwrites, text + &lost);
            } else {
                tell(write.at, Kind::Refused, text + ", which is smaller: refused");
            }
        }
    }
}

/// A fencing token in a text, from its last digits.
fn numbered(fence: Option<u64>) -> String {
    fence.map_or_else(|| ", without a number".to_owned(), |fence| format!(", number …{:09}", fence % 1_000_000_000))
}

const SERVER: &str = "server";
const STORE: &str = "store";

/// Keeps at most [`MOST`] steps: it first leaves out those between the begin and the breach, then those before a late write, then those
/// at the end.
fn shorten(steps: &mut Vec<Step>) {
    let broken = steps.iter().position(|step| step.is_broken).unwrap_or_default();
    leave_out(steps, MOST / 2, broken.saturating_sub(AROUND));
    let is_late = |step: &Step| matches!(step.kind, Kind::Overwrites | Kind::Refused);
    let late = steps.iter().position(is_late).unwrap_or_default();
    if late + AROUND > MOST {
        leave_out(steps, MOST - 2 * AROUND, late - AROUND);
    }
    steps.truncate(MOST);
}

/// Leaves out these steps, unless there is room for all.
fn leave_out(steps: &mut Vec<Step>, from: usize, to: usize) {
    if from < to && steps.len() > MOST {
        steps.drain(from..to);
        steps.iter_mut().skip(from).take(1).for_each(|after| after.left_out += to - from);
    }
}

/// Marks the steps of a stretch after which a process held what others held, or what the server did not record as its own. Without such
/// a step, the whole stretch is the breach, or the next step if the stretch lies between two steps.
fn mark_broken(steps: &mut [Step], (from, to): (u64, u64)) {
    let next = steps.iter().map(|step| step.at).find(|at| *at >= from).unwrap_or(NEVER);
    let within = |step: &Step| (from..=to.max(next)).contains(&step.at);
    let is_amiss = |step: &Step| step.holders.iter().any(|holder| step.owner.as_ref() != Some(holder));
    let amiss = steps.iter().any(|step| within(step) && is_amiss(step));
    for step in steps {
        step.is_broken = within(step) && (!amiss || is_amiss(step));
    }
}

/// A step that is not yet one of a reel.
struct Mark {
    at: u64,
    place: String,
    kind: Kind,
    text: String,
}

impl Mark {
    fn new(at: u64, place: &str, kind: Kind, text: impl Into<String>) -> Self {
        Self { at, place: place.to_owned(), kind, text: text.into() }
    }
}

fn name(lease: &Owned) -> String {
    lease.process().unwrap_or("somebody").to_owned()
}

fn words(how: How) -> &'static str {
    match how {
        How::Done => "done",
        How::Busy => "busy",
        How::Unreachable => "no answer",
        How::Lost => "lost",
        How::Cancelled => "cancelled",
        How::Failed => "failed",
    }
}

fn from_now(now: u64, at: u64) -> String {
    match at.checked_sub(now) {
        Some(rest) => format!("in {} ms", rest / 1_000_000),
        None => format!("{} ms ago", (now - at) / 1_000_000),
    }
}
