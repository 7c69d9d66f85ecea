//! [`Readers`]: the readers of this process that have one hold, and one lease, together.
//!
//! The first reader starts the hold in the usual way. It calls all readers that wait here, and they join it. Readers that come
//! later join it, too, until another process, or a writer here, is known to wait (rule S5). The last reader ends the hold.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::request::ResolvedRequest;
use super::{Effects, Env, Lease, Lock};
use crate::attendance::{Attendance, Early};
use crate::clock::{Deadline, Moment};
use crate::observe::{Path, metrics};
use crate::timing::{ENOUGH_LEASE, TURN_PATIENCE};
use crate::token::Token;

/// The readers that have a hold together.
#[derive(Debug)]
pub(crate) struct Readers {
    /// How many tasks have the hold.
    pub(crate) active: u32,
    /// The waiters that were called to the hold, and have not come yet.
    called: BTreeSet<u64>,
    called_at: Moment,
    /// Those whose acquire is not over yet.
    pub(super) early: Vec<EarlyReader>,
}

/// The part of a reader whose acquire is not over yet.
#[derive(Debug)]
pub(super) struct EarlyReader {
    pub(super) early: Arc<Early>,
    pub(super) has_body: bool,
}

/// What the keeper finds about the waiters that were called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calls {
    /// All have come.
    Answered,
    /// Some may still come.
    Open,
    /// None came in time, and nobody has the hold.
    Abandoned,
}

impl Readers {
    /// The hold of one reader.
    pub(super) fn first(now: Moment) -> Self {
        Self { active: 1, called: BTreeSet::new(), called_at: now, early: Vec::new() }
    }

    /// Forgets the parts that are early no more.
    pub(super) fn forget_complete(&mut self) {
        mutant!(CompletePartsKept => return);
        self.early.retain(|reader| reader.early.is_open());
    }

    /// Whether nobody has the hold, and nobody may still come.
    pub(super) fn is_empty(&self) -> bool {
        self.active == 0 && self.called.is_empty()
    }
}

/// The part of one reader in the hold that it has joined.
#[derive(Debug)]
pub(crate) struct Joined {
    /// The hold's id.
    pub(crate) id: u64,
    pub(crate) token: Token,
    pub(crate) holding: metrics::Holding,
    /// While its acquire is not over.
    pub(crate) early: Option<Arc<Early>>,
}

impl Lease {
    fn readers(&mut self) -> Option<&mut Readers> {
        self.hold.as_mut()?.readers.as_deref_mut()
    }

    /// Whether a reader who wants a lease of this length joins the hold: nobody else is known to wait (rule S5), and time is left
    /// (rule L1). What is enough for those who have the hold is enough: a longer lease is confirmed at once.
    fn is_open_to_readers(&self, expire: Duration, now: Moment) -> bool {
        let Some((hold, ends)) = self.hold.as_ref().zip(self.ends(now)) else { return false };
        mutant!(NewcomerIsMeasure => return ends.remaining_at(now) >= (expire / 2).min(ENOUGH_LEASE));
        ends.remaining_at(now) >= (expire.min(hold.expire) / 2).min(ENOUGH_LEASE) && !self.is_contended(now)
    }
}

impl Lock {
    fn readers(&mut self) -> Option<&mut Readers> {
        self.lease_mut()?.readers()
    }

    /// Adds a reader that comes now to the hold of others.
    pub(super) fn join(&mut self, request: &ResolvedRequest, now: Moment) -> Option<Joined> {
        mutant!(ReadersOvertakeWriter => return self.add_reader(request, now));
        if self.lease()?.is_open_to_readers(request.expire, now) { self.add_reader(request, now) } else { None }
    }

    /// Adds a reader that was called.
    pub(crate) fn join_called(&mut self, id: u64, request: &ResolvedRequest, now: Moment) -> Option<Joined> {
        if !self.readers()?.called.remove(&id) {
            return None;
        }
        let is_over = self.lease()?.has_ended(now);
        if is_over { None } else { self.add_reader(request, now) }
    }

    fn add_reader(&mut self, request: &ResolvedRequest, now: Moment) -> Option<Joined> {
        let lease = self.standing.lease_mut()?;
        let hold = lease.hold.as_mut()?;
        hold.readers.as_mut()?.active += 1;
        hold.bodies += u32::from(request.body);
        hold.linger = hold.linger.max(request.linger());
        let is_longer = request.expire > hold.expire;
        if is_longer {
            hold.expire = request.expire;
            hold.own = hold.own.max_at(Deadline::new(now, request.expire), now);
            // The keeper confirms the longer lease.
            hold.confirmed = None;
        }
        // Without its token a reader has the hold early.
        let early = request.early().or_else(|| request.fenced.then(|| Early::new(&Attendance::new())));
        hold.note_early(early.as_ref(), request.body);
        let (id, token) = (hold.id, lease.token.clone());
        let holding = lease.holds.begin(request.prefix(), Path::HandOver);
        self.counts.count(Path::HandOver);
        if is_longer || early.is_some() {
            self.track();
        }
        Some(Joined { id, token, holding, early })
    }

    /// Calls all who wait to the hold.
    pub(super) fn call_readers(&mut self, now: Moment, out: &mut Effects) {
        if self.waiters.is_empty() {
            return;
        }
        let Some(readers) = self.standing.lease_mut().and_then(Lease::readers) else { return };
        readers.called.extend(self.waiters.ids());
        readers.called_at = now;
        out.calls.extend(self.waiters.take_all());
    }

    /// Calls the readers that wait only because the lease was too short for them, or because of others who are gone.
    pub(super) fn call_waiting_readers(&mut self, now: Moment, out: &mut Effects) {
        let is_open = self.lease().is_some_and(|lease| lease.is_open_to_readers(Duration::MAX, now));
        if is_open && !self.waiters.is_empty() {
            self.call_readers(now, out);
            if !out.calls.is_empty() {
                self.track();
            }
        }
    }

    /// Takes a reader out of the hold `id`, if others still have that hold. Returns whether they have.
    pub(super) fn leave_readers(&mut self, id: u64, had_body: bool) -> bool {
        let Some(hold) = self.lease_of_mut(id).and_then(|lease| lease.hold.as_mut()) else { return false };
        let Some(readers) = hold.readers.as_deref_mut() else { return false };
        mutant!(FirstReaderEndsHold => return false);
        let others = readers.active.saturating_sub(1);
        if others == 0 && readers.called.is_empty() {
            return false;
        }
        readers.active = others;
        hold.bodies = hold.bodies.saturating_sub(u32::from(had_body));
        true
    }

    /// Forgets a task that was called and is gone. Returns whether nobody is left in the hold.
    pub(super) fn forget_called(&mut self, id: u64) -> bool {
        self.readers().is_some_and(|readers| readers.called.remove(&id) && readers.is_empty())
    }

    /// Removes called waiters that are late from the hold. They keep their places (rule L7).
    pub(super) fn check_calls(&mut self, env: &dyn Env, now: Moment) -> Calls {
        let Some(readers) = self.readers().filter(|readers| !readers.called.is_empty()) else { return Calls::Answered };
        if now.since(readers.called_at) <= TURN_PATIENCE {
            return Calls::Open;
        }
        mutant!(CalledReadersKeptForEver => return Calls::Open);
        let late = std::mem::take(&mut readers.called);
        let is_empty = readers.is_empty();
        self.note_all_late(late, env, now);
        if is_empty { Calls::Abandoned } else { Calls::Answered }
    }

    /// Removes called waiters from a hold that is lost. They keep their places, as those that are late do (rule L7).
    pub(super) fn expel_called(&mut self, lease: &mut Lease, env: &dyn Env) {
        mutant!(CalledForgotten => return);
        let Some(readers) = lease.readers().filter(|readers| !readers.called.is_empty()) else { return };
        self.note_all_late(std::mem::take(&mut readers.called), env, env.now());
    }

    fn note_all_late(&mut self, called: BTreeSet<u64>, env: &dyn Env, now: Moment) {
        for id in called {
            self.note_late(id, env, now);
        }
    }
}
