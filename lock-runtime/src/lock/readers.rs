//! [`Readers`]: the readers of this process that share one hold, and one lease.
//!
//! The first reader starts the hold in the usual way, and wakes all readers that wait. They join it when they are polled. Readers that
//! arrive later join too, until another process, or a writer here, is known to wait (rule S5). The last reader ends the hold. A reader with
//! a time limit of its own (`max_hold`, no renewal, an incomplete acquire) ends alone: the lease belongs to all of them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use thin_vec::ThinVec;

use super::request::{ResolvedRequest, Terms};
use super::{Effects, Lease, Lock, Started};
use crate::clock::{Deadline, Moment};
use crate::keep_alive::KeepAlive;
use crate::observe::Path;
use crate::share::Share;
use crate::timing::{ENOUGH_LEASE, FREE_PATIENCE};

#[derive(Debug)]
pub(crate) struct Readers {
    /// How many tasks share the hold.
    pub(crate) active: u32,
    last: u64,
    /// Those with a time limit of their own.
    limited: ThinVec<Limited>,
    /// The last reader that waited when the hold began. It and those before it may join for a short time, whatever else waits.
    pub(super) batch: u64,
    pub(super) since: Moment,
}

#[derive(Debug)]
struct Limited {
    member: u64,
    end: End,
    /// Whether it was not polled for so long that it no longer counts.
    is_gone: bool,
}

#[derive(Debug)]
enum End {
    /// With the terms, if it is their `max_hold` that ends it.
    At(Deadline, Option<Arc<Terms>>),
    /// Its acquire is not complete.
    Unpolled(Arc<KeepAlive>),
}

impl End {
    fn deadline(&self) -> Deadline {
        match self {
            Self::At(deadline, _) => *deadline,
            Self::Unpolled(alive) => alive.ends(),
        }
    }

    /// The end of a reader whose body begins `now`. `None` while the lease is renewed. Its user reads from the `terms` why it was lost.
    fn of(request: &ResolvedRequest, terms: Option<&Arc<Terms>>, now: Moment) -> Option<Self> {
        let latest = request.terms.as_ref().and_then(|terms| terms.latest_end(now));
        let own = (!request.renew).then(|| Deadline::new(now, request.expire));
        match (latest, own) {
            (Some(latest), Some(own)) if own.remaining_at(now) < latest.remaining_at(now) => Some(Self::At(own, None)),
            (Some(latest), _) => Some(Self::At(latest, terms.cloned())),
            (None, own) => own.map(|own| Self::At(own, None)),
        }
    }
}

impl Readers {
    pub(super) fn new(now: Moment) -> Self {
        Self { active: 0, last: 0, limited: ThinVec::new(), batch: 0, since: now }
    }

    /// How long until the last reader ends by itself. `None` while one of them has no limit.
    pub(super) fn left(&self, now: Moment) -> Option<Duration> {
        let counted = self.limited.iter().filter(|limited| !limited.is_gone);
        let is_limited = u32::try_from(counted.clone().count()).is_ok_and(|limited| limited >= self.active);
        let last = counted.map(|limited| limited.end.deadline().remaining_at(now)).max();
        if is_limited { last } else { None }
    }

    fn of(&self, member: u64) -> Option<&Limited> {
        self.limited.iter().find(|limited| limited.member == member)
    }

    /// Stops counting readers that were not polled in time.
    pub(super) fn forget_unpolled(&mut self, now: Moment) {
        for limited in &mut self.limited {
            if !limited.is_gone && matches!(limited.end, End::Unpolled(_)) && limited.end.deadline().has_passed_at(now)
            {
                limited.is_gone = true;
                self.active = self.active.saturating_sub(1);
            }
        }
    }

    /// Adds a reader, which is limited by `alive` while its acquire goes on. Returns its number.
    pub(super) fn add(&mut self, request: &ResolvedRequest, alive: Option<&Arc<KeepAlive>>, now: Moment) -> u64 {
        self.active += 1;
        self.last += 1;
        self.set_end(
            self.last,
            alive.cloned().map(End::Unpolled).or_else(|| End::of(request, request.terms.as_ref(), now)),
        );
        self.last
    }

    /// Completes a reader's acquire. Returns `false` if the reader was not polled for too long.
    pub(super) fn complete(
        &mut self,
        member: u64,
        request: &ResolvedRequest,
        terms: Option<&Arc<Terms>>,
        now: Moment,
    ) -> bool {
        self.forget_unpolled(now);
        let is_here = self.of(member).is_some_and(|limited| !limited.is_gone);
        if is_here {
            self.set_end(member, End::of(request, terms, now));
        }
        is_here
    }

    fn set_end(&mut self, member: u64, end: Option<End>) {
        self.limited.retain(|limited| limited.member != member);
        self.limited.extend(end.map(|end| Limited { member, end, is_gone: false }));
    }
}

impl Lease {
    pub(super) fn readers(&mut self) -> Option<&mut Readers> {
        self.hold.as_mut()?.readers.as_deref_mut()
    }

    /// How long until the part `member` of the hold ends; zero means the hold of one task.
    pub(crate) fn left_for(&self, member: u64, now: Moment) -> Option<Duration> {
        let left = self.left(now)?;
        let readers = self.hold.as_ref()?.readers.as_deref();
        match readers.and_then(|readers| readers.of(member)) {
            Some(limited) if limited.is_gone => None,
            Some(limited) => Some(limited.end.deadline().remaining_at(now).min(left)),
            None => Some(left),
        }
    }

    /// The latest end that the request of a hold, or of a reader with a part in it, allows.
    pub(crate) fn latest_end_for(&self, member: u64, now: Moment) -> Option<Deadline> {
        let hold = self.hold.as_ref()?;
        if member == 0 {
            return hold.latest_end();
        }
        let limited = hold.readers.as_deref()?.of(member)?;
        Some(limited.end.deadline()).filter(|end| !end.has_passed_at(now))
    }

    /// Moves the end of a reader whose lease is not renewed.
    pub(crate) fn move_reader_end(&mut self, member: u64, end: Deadline) {
        if let Some(readers) = self.readers()
            && let Some(Limited { end: End::At(known, _), .. }) =
                readers.limited.iter_mut().find(|limited| limited.member == member)
        {
            *known = end;
        }
    }

    /// Notes for each reader whose `max_hold` is over that this is why it was lost.
    pub(crate) fn note_spent_readers(&self, now: Moment) {
        let readers = self.hold.as_ref().and_then(|hold| hold.readers.as_deref());
        for limited in readers.iter().flat_map(|readers| &readers.limited) {
            if let End::At(end, Some(terms)) = &limited.end
                && end.has_passed_at(now)
            {
                terms.note_spent();
            }
        }
    }

    /// How long until the next reader ends by itself, and its task must be woken.
    pub(super) fn reader_ends_in(&self, now: Moment) -> Option<Duration> {
        let counted = self.hold.as_ref()?.readers.as_deref()?.limited.iter().filter(|limited| !limited.is_gone);
        counted.map(|limited| limited.end.deadline().remaining_at(now)).filter(|left| !left.is_zero()).min()
    }

    /// Whether a reader that wants a lease of this length may join the hold: no one else is known to wait (rule S5), and time is left
    /// (rule L1). What is enough for the readers that have the hold is enough: a longer lease is confirmed at once.
    fn is_open_to_readers(&self, id: u64, expire: Duration, now: Moment) -> bool {
        let Some((hold, left)) = self.hold.as_ref().zip(self.left(now)) else { return false };
        let Some(readers) = &hold.readers else { return false };
        mutant!(NewcomerIsMeasure => return left >= (expire / 2).min(ENOUGH_LEASE));
        let is_of_batch = id <= readers.batch && now.since(readers.since) <= FREE_PATIENCE;
        let has_time = self.until.remaining_at(now) >= (expire.min(hold.expire) / 2).min(ENOUGH_LEASE);
        mutant!(ReadersOvertakeWriter => return has_time);
        has_time && !left.is_zero() && (is_of_batch || !self.is_contended(now))
    }
}

impl Lock {
    /// Joins the task `id` to the hold of other readers, if it may.
    pub(super) fn join(
        &mut self,
        id: u64,
        request: &ResolvedRequest,
        now: Moment,
        out: &mut Effects,
    ) -> Option<Started> {
        let is_open = |lease: &&mut Lease| lease.is_open_to_readers(id, request.expire, now);
        let first = (request.share == Some(Share::READ)).then(|| self.leases_mut().next()).flatten();
        let lease = first.filter(is_open)?;
        let (token, hold) = (lease.token.clone(), lease.hold.as_mut()?);
        let (member, alive) = hold.add_reader(request, request.fenced, now);
        let id_of_hold = hold.id;
        self.counts.count(Path::HandOver);
        self.untaken = 0;
        // The keeper looks at a hold that wants a longer lease, or ends by itself.
        self.is_tracked = true;
        self.forget_waiter(id, out);
        let (fence, path) = (OnceLock::new(), Path::HandOver);
        Some(Started { id: id_of_hold, member, token, fence, path, dead_owner: None, alive })
    }

    /// Wakes the readers that waited only because the lease was too short for them, or for others that are gone.
    pub(super) fn wake_waiting_readers(&mut self, now: Moment, out: &mut Effects) {
        let is_open = self.leases().any(|lease| lease.is_open_to_readers(u64::MAX, Duration::MAX, now));
        if is_open && !self.waiters.is_empty() {
            self.waiters.wake_all(&mut out.woken);
        }
    }

    /// Removes a reader from the hold `id`. Returns whether its own time was already over. `None` if the hold ends: no other reader is left, or
    /// it is not a hold of readers.
    pub(super) fn leave_readers(&mut self, id: u64, member: u64, had_body: bool, now: Moment) -> Option<bool> {
        let lease = self.lease_of_mut(id)?;
        lease.note_spent_readers(now);
        let hold = lease.hold.as_mut()?;
        let readers = hold.readers.as_deref_mut()?;
        mutant!(FirstReaderEndsHold => return None);
        readers.forget_unpolled(now);
        let limited = readers.of(member);
        let is_late = limited.is_some_and(|limited| limited.is_gone || limited.end.deadline().has_passed_at(now));
        let is_gone = limited.is_some_and(|limited| limited.is_gone);
        if !is_gone {
            readers.active = readers.active.saturating_sub(1);
        }
        readers.set_end(member, None);
        hold.bodies = hold.bodies.saturating_sub(u32::from(had_body));
        if readers.active > 0 || is_gone {
            return Some(is_late);
        }
        // The last one counts until the hold has ended.
        readers.active = 1;
        hold.bodies += u32::from(had_body);
        None
    }
}
