//! [`Readers`]: the readers of this process that have one hold, and one lease, together.
//!
//! The first reader starts the hold in the usual way, and wakes all readers that wait. They join it when they are polled. Readers that
//! come later join it, too, until another process, or a writer here, is known to wait (rule S5). The last reader ends the hold. A reader
//! whose own time is limited (`max_hold`, no renewal, an acquire that is not complete) ends by itself: the lease is that of all.

use std::sync::Arc;
use std::time::Duration;

use thin_vec::ThinVec;

use super::request::ResolvedRequest;
use super::{Effects, Lease, Lock};
use crate::clock::{Deadline, Moment};
use crate::keep_alive::KeepAlive;
use crate::observe::{Path, metrics};
use crate::share::Share;
use crate::timing::{ENOUGH_LEASE, FREE_PATIENCE};
use crate::token::Token;

/// The readers that have a hold together.
#[derive(Debug)]
pub(crate) struct Readers {
    /// How many tasks have the hold.
    pub(crate) active: u32,
    /// The number of the last one.
    last: u64,
    /// Those whose time is limited.
    limited: ThinVec<Limited>,
    /// The last reader that waited when the hold began. It and those before it join for a short time whoever else waits.
    batch: u64,
    since: Moment,
}

/// A reader whose time is limited.
#[derive(Debug)]
struct Limited {
    member: u64,
    end: End,
    /// Whether it was not polled for so long that it does not count any more.
    is_gone: bool,
}

#[derive(Debug)]
enum End {
    At(Deadline),
    /// Its acquire is not complete.
    Unpolled(Arc<KeepAlive>),
}

impl End {
    fn deadline(&self) -> Deadline {
        match self {
            Self::At(deadline) => *deadline,
            Self::Unpolled(alive) => alive.ends(),
        }
    }

    /// The end of a reader whose body begins `now`. `None` while the lease is renewed.
    fn of(request: &ResolvedRequest, now: Moment) -> Option<Self> {
        let latest = request.terms.as_ref().and_then(|terms| terms.latest_end(now));
        let own = (!request.renew).then(|| Deadline::new(now, request.expire));
        let end = match (latest, own) {
            (Some(latest), Some(own)) => latest.min_at(own, now),
            (Some(end), None) | (None, Some(end)) => end,
            (None, None) => return None,
        };
        Some(Self::At(end))
    }
}

/// How a reader leaves the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaves {
    /// Others still have it.
    Others,
    /// Others still have it, and this reader's own time was over before.
    Late,
    /// Nobody has it any more.
    Last,
}

impl Readers {
    pub(super) fn new(now: Moment) -> Self {
        Self { active: 0, last: 0, limited: ThinVec::new(), batch: 0, since: now }
    }

    /// When the last reader ends by itself. `None` while there is one whose time is not limited.
    pub(super) fn ends(&self, now: Moment) -> Option<Deadline> {
        let counted = self.limited.iter().filter(|limited| !limited.is_gone);
        let is_limited = u32::try_from(counted.clone().count()).is_ok_and(|limited| limited >= self.active);
        let last = counted.map(|limited| limited.end.deadline()).reduce(|a, b| a.max_at(b, now));
        if is_limited { last } else { None }
    }

    /// When the next reader ends by itself.
    fn next_end(&self, now: Moment) -> Option<Deadline> {
        let counted = self.limited.iter().filter(|limited| !limited.is_gone);
        counted
            .map(|limited| limited.end.deadline())
            .filter(|end| !end.has_passed_at(now))
            .reduce(|a, b| a.min_at(b, now))
    }

    fn of(&self, member: u64) -> Option<&Limited> {
        self.limited.iter().find(|limited| limited.member == member)
    }

    /// Those who were not polled do not count any more.
    fn forget_unpolled(&mut self, now: Moment) {
        for limited in &mut self.limited {
            if !limited.is_gone && matches!(limited.end, End::Unpolled(_)) && limited.end.deadline().has_passed_at(now)
            {
                limited.is_gone = true;
                self.active = self.active.saturating_sub(1);
            }
        }
    }

    /// Adds a reader, whose time is limited while it is kept `alive`. Returns its number.
    pub(super) fn add(&mut self, request: &ResolvedRequest, alive: Option<&Arc<KeepAlive>>, now: Moment) -> u64 {
        self.active += 1;
        self.last += 1;
        self.set_end(self.last, alive.cloned().map(End::Unpolled).or_else(|| End::of(request, now)));
        self.last
    }

    /// The acquire of a reader is complete. Returns `false` when the reader was not polled for too long.
    pub(super) fn complete(&mut self, member: u64, request: &ResolvedRequest, now: Moment) -> bool {
        self.forget_unpolled(now);
        let is_here = self.of(member).is_some_and(|limited| !limited.is_gone);
        if is_here {
            self.set_end(member, End::of(request, now));
        }
        is_here
    }

    fn set_end(&mut self, member: u64, end: Option<End>) {
        self.limited.retain(|limited| limited.member != member);
        self.limited.extend(end.map(|end| Limited { member, end, is_gone: false }));
    }
}

/// The part of one reader in the hold that it has joined.
#[derive(Debug)]
pub(crate) struct Joined {
    /// The hold's id.
    pub(crate) id: u64,
    pub(crate) member: u64,
    pub(crate) token: Token,
    pub(crate) holding: metrics::Holding,
    /// While its acquire is not complete.
    pub(crate) alive: Option<Arc<KeepAlive>>,
}

impl Lease {
    fn readers(&mut self) -> Option<&mut Readers> {
        self.hold.as_mut()?.readers.as_deref_mut()
    }

    /// When the part `member` of the hold ends: zero is the hold of one task.
    pub(crate) fn ends_for(&self, member: u64, now: Moment) -> Option<Deadline> {
        let ends = self.ends(now)?;
        let readers = self.hold.as_ref()?.readers.as_deref();
        match readers.and_then(|readers| readers.of(member)) {
            Some(limited) if limited.is_gone => None,
            Some(limited) => Some(limited.end.deadline().min_at(ends, now)),
            None => Some(ends),
        }
    }

    /// The end of a reader whose time is limited.
    pub(super) fn reader_limit(&self, member: u64, now: Moment) -> Option<Deadline> {
        let limited = self.hold.as_ref()?.readers.as_deref()?.of(member)?;
        Some(limited.end.deadline()).filter(|end| !end.has_passed_at(now))
    }

    /// Moves the end of a reader whose lease is not renewed.
    pub(crate) fn move_reader_end(&mut self, member: u64, end: Deadline) {
        if let Some(readers) = self.readers()
            && let Some(Limited { end: End::At(known), .. }) =
                readers.limited.iter_mut().find(|limited| limited.member == member)
        {
            *known = end;
        }
    }

    /// In how long the next reader ends by itself: its task is woken then.
    pub(super) fn reader_ends_in(&self, now: Moment) -> Option<Duration> {
        let readers = self.hold.as_ref()?.readers.as_deref()?;
        readers.next_end(now).map(|end| end.remaining_at(now))
    }

    /// Whether a reader who wants a lease of this length joins the hold: nobody else is known to wait (rule S5), and time is left
    /// (rule L1). What is enough for those who have the hold is enough: a longer lease is confirmed at once.
    fn is_open_to_readers(&self, id: u64, expire: Duration, now: Moment) -> bool {
        let Some((hold, ends)) = self.hold.as_ref().zip(self.ends(now)) else { return false };
        let Some(readers) = &hold.readers else { return false };
        mutant!(NewcomerIsMeasure => return ends.remaining_at(now) >= (expire / 2).min(ENOUGH_LEASE));
        let is_of_batch = id <= readers.batch && now.since(readers.since) <= FREE_PATIENCE;
        let has_time = self.until.remaining_at(now) >= (expire.min(hold.expire) / 2).min(ENOUGH_LEASE);
        mutant!(ReadersOvertakeWriter => return has_time);
        has_time && !ends.has_passed_at(now) && (is_of_batch || !self.is_contended(now))
    }
}

impl Lock {
    /// Whether the task `id` may join the hold of other readers.
    pub(super) fn may_join(&self, id: u64, request: &ResolvedRequest, now: Moment) -> bool {
        let is_reader = request.share == Some(Share::READ);
        is_reader && self.leases().any(|lease| lease.is_open_to_readers(id, request.expire, now))
    }

    /// The task `id` joins the hold of other readers, if it may.
    pub(super) fn join(
        &mut self,
        id: u64,
        request: &ResolvedRequest,
        now: Moment,
        out: &mut Effects,
    ) -> Option<Joined> {
        if !self.may_join(id, request, now) {
            return None;
        }
        let lease = self.leases_mut().next()?;
        let (token, hold) = (lease.token.clone(), lease.hold.as_mut()?);
        let (member, alive) = hold.add_reader(request, request.fenced, now);
        let id_of_hold = hold.id;
        let holding = lease.holds.begin(request.prefix(), Path::HandOver);
        self.counts.count(Path::HandOver);
        self.untaken = 0;
        // The keeper looks at a hold that wants more, or ends by itself.
        self.is_tracked = true;
        self.forget_waiter(id, out);
        Some(Joined { id: id_of_hold, member, token, holding, alive })
    }

    /// A hold of readers has begun: all who wait now are woken to join it.
    pub(super) fn wake_readers(&mut self, now: Moment, out: &mut Effects) {
        let batch = self.waiters.last().unwrap_or_default();
        if let Some(readers) = self.leases_mut().find_map(Lease::readers) {
            (readers.batch, readers.since) = (batch, now);
        }
        self.waiters.wake_all(&mut out.woken);
    }

    /// Wakes the readers that waited only because the lease was too short for them, or because of others who are gone.
    pub(super) fn wake_waiting_readers(&mut self, now: Moment, out: &mut Effects) {
        let is_open = self.leases().any(|lease| lease.is_open_to_readers(u64::MAX, Duration::MAX, now));
        if is_open && !self.waiters.is_empty() {
            self.waiters.wake_all(&mut out.woken);
        }
    }

    /// Takes a reader out of the hold `id`. `None` when it is not a hold of readers.
    pub(super) fn leave_readers(&mut self, id: u64, member: u64, had_body: bool, now: Moment) -> Option<Leaves> {
        let lease = self.lease_of_mut(id)?;
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
            return Some(if is_late { Leaves::Late } else { Leaves::Others });
        }
        // The last one still counts until the hold has ended.
        readers.active = 1;
        hold.bodies += u32::from(had_body);
        Some(Leaves::Last)
    }

    /// Those who were not polled while their acquire went on have no part of the hold any more. Returns whether nobody has it.
    pub(super) fn forget_unpolled_readers(&mut self, now: Moment) -> bool {
        let Some(readers) = self.leases_mut().find_map(Lease::readers) else { return false };
        readers.forget_unpolled(now);
        readers.active == 0
    }
}
