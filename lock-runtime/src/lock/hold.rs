//! [`ActiveHold`]: what the slot knows of the hold on its lease.

use std::sync::Arc;
use std::time::Duration;

use super::readers::Readers;
use super::request::{ResolvedRequest, Terms};
use crate::clock::{Deadline, Drift, Moment};
use crate::error::LossReason;
use crate::keep_alive::KeepAlive;
use crate::key::PrefixPlace;
use crate::observe::Path;
use crate::share::Share;

/// The hold on a lease.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the hold")]
#[derive(Debug)]
pub(crate) struct ActiveHold {
    pub(crate) id: u64,
    pub(crate) since: Moment,
    pub(crate) prefix: PrefixPlace,
    pub(crate) path: Path,
    pub(crate) expire: Duration,
    pub(crate) renew: bool,
    /// Whether the next call replaces it, as it replaced the one before.
    pub(crate) is_replaceable: bool,
    /// How many of its users have a body, which is dropped if the hold is lost.
    pub(crate) bodies: u32,
    /// The readers that share the hold. `None` for a hold of one task.
    pub(crate) readers: Option<Box<Readers>>,
    /// How long the lease is kept after the hold.
    pub(crate) linger: Duration,
    pub(crate) terms: Option<Arc<Terms>>,
    /// Until when others are kept out, even if the hold ends earlier. Boxed: few holds have it.
    pub(crate) kept_until: Option<Box<Deadline>>,
    /// Whether it was reported that the hold lasts for long.
    pub(crate) is_long_reported: bool,
    /// The hold's own end, even if the store has confirmed the lease for longer. See [`ActiveHold::left`].
    pub(super) own: Deadline,
    /// When the store last confirmed the full lease for this hold.
    pub(crate) confirmed: Option<Moment>,
    /// Whether that confirmation was for an earlier hold: then less of the lease is left than this hold may last.
    pub(crate) is_inherited: bool,
    /// Set while the acquire goes on. Readers have theirs in `readers`.
    alive: Option<Arc<KeepAlive>>,
}

/// What is reported of a hold that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedHold {
    pub(crate) since: Moment,
    pub(crate) prefix: PrefixPlace,
    pub(crate) users: u32,
    /// Why it was lost, if its deadline passed.
    pub(crate) reason: LossReason,
    /// Whether the next call replaces it: then a force is no loss.
    pub(crate) is_replaceable: bool,
}

impl ActiveHold {
    /// A hold that starts `now`. If it is one of several keys, its lease is renewed until its time begins.
    pub(crate) fn new(id: u64, path: Path, request: &ResolvedRequest, now: Moment) -> Self {
        let mut hold = Self::of_request(id, path, request, now);
        let (is_reader, alive) = (request.share == Some(Share::READ), request.alive());
        if is_reader || alive.is_some() {
            hold.own = Deadline::new(now, request.expire);
            (hold.renew, hold.terms, hold.kept_until, hold.bodies) = (true, None, None, 0);
            hold.readers = is_reader.then(|| Box::new(Readers::new(now)));
            hold.alive = alive.filter(|_| !is_reader);
            if let Some(alive) = &hold.alive {
                alive.note_hold();
            }
        }
        hold
    }

    /// A hold whose time begins `now`.
    fn of_request(id: u64, path: Path, request: &ResolvedRequest, now: Moment) -> Self {
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
            is_long_reported: false,
            own,
            confirmed: None,
            is_inherited: false,
            alive: None,
        }
    }

    /// Restarts the hold as if it had started `now`, by its own `request`.
    pub(crate) fn begin(&mut self, request: &ResolvedRequest, now: Moment) {
        *self = Self::of_request(self.id, self.path, request, now);
    }

    /// How long until the hold ends, even if the store has confirmed the lease for longer.
    pub(super) fn left(&self, now: Moment) -> Duration {
        let own = self.own.remaining_at(now);
        match (&self.readers, &self.alive) {
            (Some(readers), _) => readers.left(now).map_or(own, |left| left.min(own)),
            (None, Some(alive)) => alive.ends().remaining_at(now).min(own),
            (None, None) => own,
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

    pub(super) fn note(&self) -> Option<&str> {
        self.terms.as_ref()?.note()
    }

    pub(crate) fn users(&self) -> u32 {
        self.readers.as_ref().map_or(1, |readers| readers.active)
    }

    pub(crate) fn latest_end(&self) -> Option<Deadline> {
        self.terms.as_ref()?.latest_end(self.since)
    }

    /// Moves its own end to `own`, but not past the latest end.
    pub(crate) fn move_end(&mut self, own: Deadline, now: Moment) {
        let own = self.own.max_at(own, now);
        self.own = self.latest_end().map_or(own, |latest| latest.min_at(own, now));
    }

    /// Whether a lease until `until` lasts as long as this hold may.
    pub(crate) fn is_covered_by(&self, until: Deadline) -> bool {
        self.latest_end().is_some_and(|latest| until.span() >= latest.remaining_at(until.start()))
    }

    /// Whether a lease until `until` needs no more renewals: it lasts as long as this hold may, with time left to make the lock rest.
    pub(crate) fn is_kept_by(&self, until: Deadline) -> bool {
        let slack = self.terms.as_ref().map_or(Duration::ZERO, |terms| terms.slack());
        self.latest_end().is_some_and(|latest| until.span() >= latest.remaining_at(until.start()).saturating_add(slack))
    }

    /// For how long the lock rests if its body is dropped before its end.
    pub(crate) fn lock_delay(&self) -> Duration {
        self.terms.as_ref().map_or(Duration::ZERO, |terms| terms.lock_delay)
    }

    pub(crate) fn wanted(&self, now: Moment, drift: Drift) -> Duration {
        if !self.renew {
            return self.own.remaining_at(now);
        }
        match self.latest_end() {
            None => self.expire,
            Some(latest) => {
                let slack = self.terms.as_ref().map_or(Duration::ZERO, |terms| terms.slack());
                self.expire.min(drift.lease_for(latest.remaining_at(now).saturating_add(slack)))
            }
        }
    }
}

/// Readers.
impl ActiveHold {
    /// Adds a reader. Returns its number, and what keeps it alive while it `lacks_fence`.
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
        match &alive {
            Some(alive) => alive.note_hold(),
            None => self.begin_reader(request, now),
        }
        let member = self.readers.as_deref_mut().map_or(0, |readers| readers.add(request, alive.as_ref(), now));
        (member, alive)
    }

    fn begin_reader(&mut self, request: &ResolvedRequest, now: Moment) {
        self.bodies += u32::from(request.body);
        let kept_until = request.terms.as_ref().and_then(|terms| terms.kept_until(now));
        self.kept_until = match (self.kept_until.take(), kept_until) {
            (Some(known), Some(new)) => Some(Box::new(known.max_at(*new, now))),
            (known, new) => known.or(new),
        };
    }

    /// Completes a reader's acquire. Returns `false` if the reader was not polled for too long.
    pub(super) fn complete_reader(
        &mut self,
        member: u64,
        request: &ResolvedRequest,
        terms: Option<&Arc<Terms>>,
        now: Moment,
    ) -> bool {
        let is_here = self.readers.as_deref_mut().is_some_and(|readers| readers.complete(member, request, terms, now));
        if is_here {
            self.linger = self.linger.max(request.linger());
            self.begin_reader(request, now);
        }
        is_here
    }
}
