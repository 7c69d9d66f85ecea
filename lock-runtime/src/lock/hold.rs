//! [`ActiveHold`]: what a slot knows of the hold that its lease carries now.

use std::sync::Arc;
use std::time::Duration;

use super::readers::Readers;
use super::request::ResolvedRequest;
use super::terms::Terms;
use crate::clock::{Deadline, Drift, Moment};
use crate::error::LossReason;
use crate::keep_alive::KeepAlive;
use crate::key::PrefixPlace;
use crate::observe::{Path, metrics};
use crate::share::Share;

/// The hold that a lease carries now.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the hold")]
#[derive(Debug)]
pub(crate) struct ActiveHold {
    pub(crate) id: u64,
    pub(crate) since: Moment,
    pub(crate) prefix: PrefixPlace,
    pub(crate) path: Path,
    pub(crate) expire: Duration,
    pub(crate) renew: bool,
    /// Whether the next call is to replace it, as it replaced the one before.
    pub(crate) is_replaceable: bool,
    /// How many of its users have a body: code that is dropped when the hold is lost.
    pub(crate) bodies: u32,
    /// The readers that have the hold together. `None` for a hold of one task.
    pub(crate) readers: Option<Box<Readers>>,
    /// How long the lease is kept after the hold.
    pub(crate) linger: Duration,
    pub(crate) terms: Option<Arc<Terms>>,
    /// Until when others are kept out, also when the hold ends before. Boxed: few holds have such a time.
    pub(crate) kept_until: Option<Box<Deadline>>,
    /// Whether it was told that the hold lasts for long.
    pub(crate) is_long_told: bool,
    /// The hold's own end, even when the store has confirmed the lease for longer. See [`ActiveHold::ends`].
    pub(super) own: Deadline,
    /// When the store last confirmed the full lease for this hold.
    pub(crate) confirmed: Option<Moment>,
    /// Whether that was for a hold before this one: the rest of the lease is shorter than this hold may last.
    pub(crate) is_inherited: bool,
    /// While its acquire goes on. Readers have theirs in `readers`.
    alive: Option<Arc<KeepAlive>>,
    /// Counts the hold for as long as it lasts. Each of several readers has its own.
    pub(crate) holding: Option<metrics::Holding>,
}

/// What is told of a hold that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedHold {
    pub(crate) since: Moment,
    pub(crate) prefix: PrefixPlace,
    /// How many tasks had it.
    pub(crate) users: u32,
    /// Why it was lost, if its deadline passed.
    pub(crate) reason: LossReason,
    /// Whether it was to be replaced by the next call: then to be forced is no loss.
    pub(crate) is_replaceable: bool,
}

impl ActiveHold {
    /// A hold that starts `now`. If it is one of several keys, its lease is renewed until its time begins.
    pub(crate) fn new(id: u64, path: Path, holding: metrics::Holding, request: &ResolvedRequest, now: Moment) -> Self {
        let mut hold = Self::of_request(id, path, holding, request, now);
        if request.share == Some(Share::READ) {
            hold.readers = Some(Box::new(Readers::new(now)));
            (hold.renew, hold.terms, hold.bodies, hold.kept_until) = (true, None, 0, None);
            hold.own = Deadline::new(now, request.expire);
        } else if let Some(alive) = request.alive() {
            hold.own = Deadline::new(now, request.expire);
            (hold.renew, hold.terms, hold.kept_until, hold.bodies) = (true, None, None, 0);
            hold.alive = Some(alive);
        }
        hold
    }

    /// A hold whose time begins `now`.
    fn of_request(id: u64, path: Path, holding: metrics::Holding, request: &ResolvedRequest, now: Moment) -> Self {
        let &ResolvedRequest { prefix, expire, renew, body, ref terms, .. } = request;
        let terms = terms.clone();
        let own = Deadline::new(now, expire);
        let own = terms.as_ref().and_then(|terms| terms.latest_end(now)).map_or(own, |latest| latest.min_at(own, now));
        let kept_until = terms.as_ref().and_then(|terms| terms.kept_until(now));
        Self {
            id,
            since: now,
            prefix,
            path,
            expire,
            renew,
            bodies: u32::from(body),
            is_replaceable: request.replaces(),
            linger: request.linger(),
            readers: None,
            terms,
            kept_until,
            is_long_told: false,
            own,
            confirmed: None,
            is_inherited: false,
            alive: None,
            holding: Some(holding),
        }
    }

    /// The same hold as if it had started `now`, by its own `request`.
    pub(crate) fn begin(&mut self, request: &ResolvedRequest, now: Moment) {
        if let Some(holding) = self.holding.take() {
            *self = Self::of_request(self.id, self.path, holding, request, now);
        }
    }

    /// When the hold ends, even when the store has confirmed the lease for longer.
    pub(super) fn ends(&self, now: Moment) -> Deadline {
        match (&self.readers, &self.alive) {
            (Some(readers), _) => readers.ends(now).map_or(self.own, |ends| ends.min_at(self.own, now)),
            (None, Some(alive)) => alive.ends().min_at(self.own, now),
            (None, None) => self.own,
        }
    }

    pub(crate) fn as_ended(&self) -> EndedHold {
        EndedHold {
            since: self.since,
            prefix: self.prefix,
            users: self.users(),
            reason: LossReason::Deadline,
            is_replaceable: self.is_replaceable,
        }
    }

    /// How many tasks have the hold.
    pub(crate) fn users(&self) -> u32 {
        self.readers.as_ref().map_or(1, |readers| readers.active)
    }

    /// The latest end that its request allows.
    pub(crate) fn latest_end(&self) -> Option<Deadline> {
        self.terms.as_ref()?.latest_end(self.since)
    }

    /// Moves its own end to `own`, but not beyond the latest end.
    pub(crate) fn move_end(&mut self, own: Deadline, now: Moment) {
        let own = self.own.max_at(own, now);
        self.own = self.latest_end().map_or(own, |latest| latest.min_at(own, now));
    }

    /// Whether a lease until `until` lasts for as long as this hold may.
    pub(crate) fn is_covered_by(&self, until: Deadline) -> bool {
        self.latest_end().is_some_and(|latest| until.span() >= latest.remaining_at(until.start()))
    }

    /// The lease that the hold wants at `now`.
    pub(crate) fn wanted(&self, now: Moment, drift: Drift) -> Duration {
        if !self.renew {
            return self.own.remaining_at(now);
        }
        match self.latest_end() {
            None => self.expire,
            Some(latest) => self.expire.min(drift.lease_for(latest.remaining_at(now))),
        }
    }

    /// In how long the hold will have lasted for `long`. `None` when that was told before.
    pub(crate) fn long_hold_due_in(&self, long: Duration, now: Moment) -> Option<Duration> {
        (!self.is_long_told).then(|| long.saturating_sub(now.since(self.since)))
    }

    /// How long the hold has lasted, the first time that this is at least `long`.
    pub(crate) fn note_long(&mut self, long: Duration, now: Moment) -> Option<Duration> {
        self.long_hold_due_in(long, now).filter(Duration::is_zero)?;
        self.is_long_told = true;
        Some(now.since(self.since))
    }
}

/// What readers share.
impl ActiveHold {
    /// Adds a reader. Returns its number, and what it is kept alive by while it `lacks_fence`.
    pub(super) fn add_reader(
        &mut self,
        request: &ResolvedRequest,
        lacks_fence: bool,
        now: Moment,
    ) -> (u64, Option<Arc<KeepAlive>>) {
        self.linger = self.linger.max(request.linger());
        let is_longer = request.lease() > self.expire;
        if is_longer {
            self.expire = request.lease();
            self.own = self.own.max_at(Deadline::new(now, self.expire), now);
            // The keeper confirms the longer lease.
            self.confirmed = None;
        }
        let alive = request.alive().or_else(|| lacks_fence.then(|| KeepAlive::new(now)));
        if alive.is_none() {
            self.begin_reader(request, now);
        }
        let member = self.readers.as_deref_mut().map_or(0, |readers| readers.add(request, alive.as_ref(), now));
        (member, alive)
    }

    /// The body of a reader begins.
    fn begin_reader(&mut self, request: &ResolvedRequest, now: Moment) {
        self.bodies += u32::from(request.body);
        let kept_until = request.terms.as_ref().and_then(|terms| terms.kept_until(now));
        self.kept_until = match (self.kept_until.take(), kept_until) {
            (Some(known), Some(new)) => Some(Box::new(known.max_at(*new, now))),
            (known, new) => known.or(new),
        };
    }

    /// The acquire of a reader is complete. Returns `false` when the reader was not polled for too long.
    pub(super) fn complete_reader(&mut self, member: u64, request: &ResolvedRequest, now: Moment) -> bool {
        if !self.readers.as_deref_mut().is_some_and(|readers| readers.complete(member, request, now)) {
            return false;
        }
        self.linger = self.linger.max(request.linger());
        self.begin_reader(request, now);
        true
    }
}
