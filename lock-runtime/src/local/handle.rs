//! [`HoldHandle`]: a reference to a hold that may outlive the hold.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::Core;
use super::slot::Slot;
use crate::clock::{Deadline, Moment};
use crate::error::LossReason;
use crate::keep_alive::KeepAlive;
use crate::key::PrefixPlace;
use crate::lock::{Lease, ResolvedRequest, Started, Terms};
use crate::observe::{Path, metrics};
use crate::opaque::Opaque;
use crate::protocol::{Ownership, Release, Renewal, Renewed, StoreError};
use crate::share::Share;
use crate::store::{Store, exactly_one};
use crate::timing::CLAIM;
use crate::token::Token;
use crate::turns::Turns;
use crate::{FencingToken, LockError};

#[derive(Clone, Debug)]
pub(crate) struct HoldHandle(Opaque<HoldInner>);

/// The turns of joined calls that enter a hold again inside its body: only one at a time.
pub(crate) type Reentry = OnceLock<Arc<Turns>>;

/// The result of an extension that the store has confirmed.
enum Extended {
    Yes,
    /// The hold's deadline had already passed (rule 13: the hold does not come back).
    TooLate,
    /// The hold had already ended.
    Ended,
}

#[derive(Debug)]
struct HoldInner {
    slot: Arc<Slot>,
    id: u64,
    /// The reader's number among those that share the hold; zero for the hold of one task.
    member: u64,
    token: Token,
    fence: OnceLock<u64>,
    path: Path,
    terms: Option<Arc<Terms>>,
    reentry: Reentry,
    /// Set while the acquire goes on.
    alive: Option<Arc<KeepAlive>>,
    /// Counts the hold in the metrics until it ends.
    holding: metrics::Holding,
}

impl HoldHandle {
    pub(super) fn new(slot: &Arc<Slot>, started: Started, request: &ResolvedRequest) -> Self {
        let Started { id, member, token, fence, path, alive, .. } = started;
        let holding = slot.holds.begin(request.prefix(), path);
        let (slot, terms) = (Arc::clone(slot), request.terms.clone());
        let reentry = Reentry::new();
        Self(Opaque::new(HoldInner { slot, id, member, token, fence, path, terms, reentry, alive, holding }))
    }

    pub(super) fn slot(&self) -> &Arc<Slot> {
        &self.0.slot
    }

    pub(super) fn ids(&self) -> (u64, u64) {
        (self.0.id, self.0.member)
    }

    pub(super) fn alive(&self) -> Option<&Arc<KeepAlive>> {
        self.0.alive.as_ref()
    }

    /// The hold has ended: the metrics no longer count it.
    pub(super) fn end_counting(&self) {
        self.0.holding.end();
    }

    pub(crate) fn reentry(&self) -> &Reentry {
        &self.0.reentry
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.0.slot.core
    }

    pub(super) fn release_again(&self, kept_until: Option<Box<Deadline>>, delay: Duration) {
        let (HoldInner { slot, token, .. }, now) = (&*self.0, Moment::now());
        let release = Release { kept_until, ..Release::withdrawal_at(now, &slot.key, token, CLAIM) };
        slot.core.release_later(release.with_delay(delay, now));
    }

    /// Releases the lease of a hold that was lost (rule 13: once the body is dropped). The slot has forgotten the lease, but the store may
    /// still have it. If the body `is_dropped` before its end, the lock rests for its `lock_delay`.
    pub(super) fn release_after_loss(&self, is_dropped: bool) {
        let HoldInner { slot, token, .. } = &*self.0;
        // The hold of a plain guard was released when it was lost. If the store has granted the lease again, this release covers that grant
        // too.
        if let Some(ended) = slot.end_use(token) {
            self.release_again(ended.kept_until, if is_dropped { ended.delay } else { Duration::ZERO });
        }
    }

    /// Notes that the user of a lost hold is gone; no release waited for it.
    pub(super) fn forget_forced(&self) {
        self.0.slot.note(|lock| lock.forget_forced(&self.0.token));
    }

    pub(crate) fn key(&self) -> &str {
        &self.0.slot.key
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.0.slot.key
    }

    /// Whether a body under this hold may do what a hold of this `share` allows.
    pub(crate) fn covers(&self, share: Option<Share>) -> bool {
        self.0.slot.share.is_none_or(|outer| share.is_some_and(|inner| outer.covers(inner)))
    }

    pub(crate) fn is_of_reader(&self) -> bool {
        self.0.slot.share == Some(Share::READ)
    }

    pub(crate) fn is_of(&self, core: &Arc<Core>, key: &str) -> bool {
        Arc::ptr_eq(&self.0.slot.core, core) && *self.0.slot.key == *key
    }

    /// The full name of a lock called `name` in the namespace of this hold's manager.
    #[cfg(feature = "testing")]
    pub(crate) fn full_name_of(&self, name: &str) -> Result<Arc<str>, LockError> {
        self.core().settings().full_name(name.into())
    }

    /// The key of the hold, if it is a hold in `core`.
    pub(crate) fn key_in(&self, core: &Arc<Core>) -> Option<Arc<str>> {
        Arc::ptr_eq(&self.0.slot.core, core).then(|| Arc::clone(&self.0.slot.key))
    }

    pub(crate) fn fencing_token(&self) -> Option<FencingToken> {
        self.0.fence.get().copied().map(FencingToken::from)
    }

    pub(crate) fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Whether the hold has ended, or is known to be lost. A deadline that has passed counts once it has been noticed.
    pub(super) fn has_ended(&self) -> bool {
        let HoldInner { slot, id, .. } = &*self.0;
        slot.peek(|lock| lock.lease_of(*id).is_none())
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.remaining_at(Moment::now())
    }

    pub(crate) fn remaining_at(&self, now: Moment) -> Duration {
        let HoldInner { slot, id, member, .. } = &*self.0;
        slot.peek(|lock| lock.lease_of(*id)?.left_for(*member, now)).unwrap_or_default()
    }

    pub(crate) fn prefix(&self) -> PrefixPlace {
        let prefix = self.0.slot.peek(|lock| Some(lock.lease_of(self.0.id)?.hold.as_ref()?.prefix));
        prefix.unwrap_or_default()
    }

    pub(crate) fn path(&self) -> Path {
        self.0.path
    }

    pub(super) fn changed(&self) -> &Notify {
        &self.0.slot.changed
    }

    pub(crate) fn lost_error(&self, completed: bool) -> LockError {
        self.lost_as(completed, self.0.slot.peek(|lock| lock.was_forced(&self.0.token)))
    }

    fn lost_as(&self, completed: bool, forced: bool) -> LockError {
        LockError::Lost { key: self.key().to_owned(), completed, forced, max_hold: self.spent(), ticket: false }
    }

    /// Handles the store's report, at the end of the hold, that the hold was lost before. Returns the error, and how it was lost.
    pub(super) fn on_found_lost(&self, ownership: Ownership, completed: bool) -> (LockError, LossReason) {
        let HoldInner { slot, token, .. } = &*self.0;
        let is_forced = slot.note(|lock| lock.forget_forced(token)) || ownership == Ownership::Forced;
        (self.lost_as(completed, is_forced), if is_forced { LossReason::Forced } else { LossReason::NotKnown })
    }

    /// The hold's time limit, if the hold was lost because it reached that limit.
    fn spent(&self) -> Option<Duration> {
        let terms = self.0.terms.as_ref()?;
        let now = Moment::now();
        self.0.slot.peek(|lock| {
            let Some(lease) = lock.lease_of(self.0.id) else { return };
            if self.0.member > 0 {
                lease.note_spent_readers(now);
            } else if lease.has_ended(now) {
                // The deadline may have passed unnoticed.
                let _ = lease.ended_hold();
            }
        });
        terms.spent()
    }

    /// Refuses an extension beyond the hold's time limit.
    fn check_extension(&self, lease: Duration) -> Result<(), LockError> {
        let now = Moment::now();
        let latest = self.0.slot.peek(|lock| lock.lease_of(self.0.id)?.latest_end_for(self.0.member, now));
        match latest.map(|latest| latest.remaining_at(now)) {
            Some(left) if lease > left => {
                let reason = format!("{lease:?} is longer than the {left:?} that `max_hold` leaves to this hold");
                Err(LockError::InvalidSetting { setting: "lease to extend to", reason })
            }
            _ => Ok(()),
        }
    }

    /// See [`LockGuard::extend`](crate::LockGuard::extend).
    pub(crate) async fn extend(&self, lease: Duration) -> Result<(), LockError> {
        self.core().settings().check_lease("lease to extend to", lease)?;
        if !self.is_valid() {
            return Err(self.lost_error(false));
        }
        if self.0.terms.is_some() {
            self.check_extension(lease)?;
        }
        let (sent, patience) = (Moment::now(), self.core().settings().command_timeout);
        self.renew(lease, Deadline::new(sent, lease), Deadline::new(sent, patience)).await
    }

    /// Has the store keep the lease for `lease` from now, and moves the hold's own end to `own`, which counts from now.
    async fn renew(&self, lease: Duration, own: Deadline, deadline: Deadline) -> Result<(), LockError> {
        let HoldInner { slot, token, .. } = &*self.0;
        let (key, grace) = (Arc::clone(&slot.key), slot.core.settings().grace);
        let renewal = Renewal { key, token: token.clone(), share: slot.share, lease, grace, arms: false };
        let mut sent = own.start();
        loop {
            slot.change_lease(token, |lease| lease.note_renewal_sent(&renewal, sent));
            match exactly_one(slot.core.store().renew(std::slice::from_ref(&renewal), deadline).await) {
                // This answer is older than what is known: ask the store again.
                Ok(Renewed::NotOwned | Renewed::Forced) if self.is_confirmed_after(sent) => {
                    sent = Moment::now();
                }
                Ok(renewed) => return self.on_renewed(renewed, own),
                Err(error) => return Err(error.of_lock(self.key())),
            }
        }
    }

    /// Whether the lease of this hold is known from an ask, or a push, after `sent`.
    pub(super) fn is_confirmed_after(&self, sent: Moment) -> bool {
        self.0.slot.peek(|lock| lock.lease_of(self.0.id).is_some_and(|lease| lease.is_confirmed_after(sent)))
    }

    /// Handles the store's answer to an extension, which moves the hold's own end to `own`.
    pub(super) fn on_renewed(&self, renewed: Renewed, own: Deadline) -> Result<(), LockError> {
        match renewed {
            Renewed::Until(until) => match self.lengthen(until, own) {
                Extended::Yes => Ok(()),
                Extended::TooLate => Err(self.revoke(LossReason::Deadline)),
                // The store keeps the lease, but another hold has it now.
                Extended::Ended => Err(self.lost_error(false)),
            },
            Renewed::NotOwned => Err(self.revoke(LossReason::NotKnown)),
            Renewed::Forced => Err(self.revoke(LossReason::Forced)),
        }
    }

    /// Ends the lease for every hold on it. Returns the error for the caller.
    fn revoke(&self, reason: LossReason) -> LockError {
        let HoldInner { slot, token, .. } = &*self.0;
        slot.core.revoke(slot, Some(token), reason);
        self.lost_error(false)
    }

    /// Lengthens the hold if it still exists. The store has confirmed it until `until`, and its own end moves to `own`.
    fn lengthen(&self, until: Deadline, own: Deadline) -> Extended {
        self.0.slot.note(|lock| {
            let now = Moment::now();
            let lease = lock.lease_of_mut(self.0.id).filter(|lease| lease.token == self.0.token);
            // The hold may have ended while the store was asked. Its lease may have been handed over with the same token.
            let Some(lease) = lease else { return Extended::Ended };
            if !lease.confirm(until, now) {
                return Extended::TooLate;
            }
            if let Some(hold) = &mut lease.hold {
                hold.move_end(own, now);
            }
            lease.move_reader_end(self.0.member, own);
            Extended::Yes
        })
    }

    /// Begins the time of a hold whose acquire is complete `now`. Returns `false` if the hold is lost.
    pub(crate) fn begin(&self, request: &ResolvedRequest, now: Moment) -> bool {
        self.0.slot.step(|lock, _| lock.begin_time(self.ids(), request, self.0.terms.as_ref(), now))
    }

    /// Has the store confirm the lease for as long as the nested `request` keeps others out. Its body starts within a command timeout.
    pub(crate) async fn confirm_for(&self, request: &ResolvedRequest, deadline: Deadline) -> Result<(), LockError> {
        if request.at_least().is_zero() {
            return Ok(());
        }
        let (sent, patience) = (Moment::now(), self.core().settings().command_timeout);
        let needed = request.at_least().saturating_add(patience);
        let is_short = |lease: &Lease| lease.until.remaining_at(sent) < needed;
        if !self.0.slot.peek(|lock| lock.lease_of(self.0.id).is_some_and(is_short)) {
            return Ok(());
        }
        let deadline = deadline.min_at(Deadline::new(sent, patience), sent);
        // Boxed: most calls send nothing.
        Box::pin(self.renew(request.lease(), Deadline::new(sent, Duration::ZERO), deadline)).await
    }

    /// Keeps others out for as long as the nested `request` wants, counted from `now`. The lease is confirmed for that time.
    pub(crate) fn keep_out(&self, request: &ResolvedRequest, now: Moment) {
        let Some(terms) = &request.terms else { return };
        self.0.slot.note(|lock| {
            if let Some(hold) = lock.lease_of_mut(self.0.id).and_then(|lease| lease.hold.as_mut())
                && hold.kept_until.as_ref().is_none_or(|until| until.remaining_at(now) < terms.at_least)
            {
                hold.kept_until = terms.kept_until(now);
            }
        });
    }

    /// The hold for a nested body: the same hold, with a fencing token if the body wants one.
    pub(crate) async fn borrow(&self, fenced: bool, deadline: Deadline) -> Result<Self, LockError> {
        if !self.is_valid() {
            return Err(self.lost_error(false));
        }
        if !fenced || self.0.fence.get().is_some() {
            return Ok(self.clone());
        }
        match self.draw(deadline).await {
            Ok(true) => Ok(self.clone()),
            Ok(false) => Err(self.lost_error(false)),
            Err(error) => Err(error.of_lock(self.key())),
        }
    }

    /// Draws a fencing token for the hold. Returns whether the hold has one now: not if its lease is gone. An answer that the task reads
    /// after the deadline is too late: the caller's time is over.
    pub(super) async fn draw(&self, deadline: Deadline) -> Result<bool, StoreError> {
        let inner = &*self.0;
        let share = inner.slot.share;
        let first = loop {
            let sent = Moment::now();
            match inner.slot.core.store().draw(&inner.slot.key, &inner.token, share, 1, deadline).await? {
                Some(first) => break first,
                // As in `renew`.
                None if self.is_confirmed_after(sent) => {}
                None => {
                    inner.slot.core.revoke(&inner.slot, Some(&inner.token), LossReason::NotKnown);
                    return Ok(false);
                }
            }
        };
        // Rule 8: this token is greater than those that are reserved.
        let forget = |lease: &mut Lease| mutant!(SmallerFencesKept => (), else lease.fences.forget_up_to(first));
        inner.slot.change_lease(&inner.token, forget);
        // Two joined calls may both have drawn a token. The first that arrives here stays.
        let _ = inner.fence.set(first);
        if is_late(deadline) {
            return Err(inner.slot.core.store().unanswered(&inner.slot.key, deadline.span()));
        }
        Ok(true)
    }
}

fn is_late(deadline: Deadline) -> bool {
    mutant!(LateDrawGranted => return false);
    deadline.has_passed()
}
