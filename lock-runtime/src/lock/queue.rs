//! How a task enters and leaves, and what follows from each change: [`Lock::settle`].

use std::task::Waker;
use std::time::Duration;

use super::readers::Joined;
use super::request::ResolvedRequest;
use super::wait_queue::Waiter;
use super::{Effects, Env, Lane, Lease, Lock, PendingAsk, Standing};
use crate::clock::{Deadline, Moment};
use crate::share::Share;

/// How a task finds the lock.
#[derive(Debug)]
pub(crate) enum Entered {
    /// Nobody is in front of the task `id`. Perhaps the process `has_lease`.
    First { id: u64, has_lease: bool },
    /// The task `id` waits.
    Waits(u64),
    /// The task has the hold of other readers together with them.
    Joined(Joined),
    /// A task here holds the lock, asks for it or waits for it, and this task does not want to wait.
    Taken,
    /// A task here has the lock or asks for it, and this one replaces whoever has it.
    InTheWay,
}

impl Lock {
    /// A task comes. It is to be [polled](Lock::poll) if it is `First`, and to be admitted and [polled](Lock::wait) if it `Waits`.
    pub(crate) fn enter(
        &mut self,
        request: &ResolvedRequest,
        env: &dyn Env,
        now: Moment,
        out: &mut Effects,
    ) -> Entered {
        let id = self.waiters.new_id();
        if let Some(joined) = self.join(id, request, now, out) {
            return Entered::Joined(joined);
        }
        if request.replaces() && !self.is_unused() {
            return Entered::InTheWay;
        }
        let is_first = self.waiters.has_precedence(id) && (self.has_free_lane() || self.has_room_for_entrant(env));
        if is_first {
            if request.replaces() {
                self.newest = id;
            }
            self.entrants += 1;
            return Entered::First { id, has_lease: self.leases().next().is_some() };
        }
        if request.is_try() { Entered::Taken } else { Entered::Waits(id) }
    }

    /// Whether what is granted lies free, or an ask has no task.
    fn has_free_lane(&self) -> bool {
        self.entrants == 0 && self.lanes.iter().any(|lane| lane.is_free() || lane.is_idle_ask())
    }

    /// Whether one more task may ask.
    fn has_room_for_entrant(&self, env: &dyn Env) -> bool {
        let entrants = usize::try_from(self.entrants).unwrap_or(usize::MAX);
        has_room(env, self.lanes.len().saturating_add(entrants))
    }

    /// How many tasks wait and do not act.
    pub(super) fn without_ask(&self) -> usize {
        let acting = self.lanes.iter().filter_map(|lane| lane.acting);
        self.waiters.len() - acting.filter(|acting| self.waiters.has(acting.id)).count()
    }

    /// How many tasks wait, for one that comes and waits behind them. The task that asks waits, too.
    pub(crate) fn waiting(&self) -> usize {
        let acting = self.lanes.iter().filter(|lane| lane.acting.is_some() && lane.lease().is_none());
        let acting = acting.filter(|lane| lane.acting.is_some_and(|acting| !self.waiters.has(acting.id)));
        self.waiters.len() + acting.count()
    }

    /// The task `id` begins to wait.
    pub(crate) fn wait(&mut self, id: u64, request: &ResolvedRequest) {
        self.waiters.add(id, Waiter::new(request));
    }

    /// The task `id`, which has entered, is polled for the first time, or gives up before.
    pub(crate) fn begin(&mut self) {
        self.entrants = self.entrants.saturating_sub(1);
    }

    /// The task `id` waits for something else than the lock, at most for this time: `waker` wakes it as well.
    pub(crate) fn park(
        &mut self,
        id: u64,
        request: &ResolvedRequest,
        waker: Waker,
        pause: Duration,
        now: Moment,
        out: &mut Effects,
    ) {
        for lane in &mut self.lanes {
            if lane.is_acting(id) {
                lane.acting = None;
            }
        }
        if !self.waiters.has(id) {
            self.waiters.add(id, Waiter::new(request));
        }
        self.waiters.on_poll(id);
        self.register(id, waker, out);
        self.pause(pause, now);
    }

    /// The task `id` gives up.
    pub(crate) fn leave(&mut self, id: u64, out: &mut Effects) {
        mutant!(DeadTaskStays => return);
        let was_first = self.waiters.first_awake() == Some(id);
        self.forget_waiter(id, out);
        for lane in &mut self.lanes {
            if lane.is_acting(id) {
                lane.acting = None;
            }
        }
        if was_first && self.lanes.iter().any(Lane::is_idle_ask) {
            // From now on the next task looks when the ask has to be repeated.
            out.woken.extend(self.waiters.wake_first());
        }
    }

    /// The task `id` waits no more.
    pub(super) fn forget_waiter(&mut self, id: u64, out: &mut Effects) {
        if let Some(waiter) = self.waiters.remove(id) {
            out.drop_waker(waiter.into_waker());
        }
    }

    /// After each change: what nobody here needs is released, and the next task is woken when there is something to do for it.
    pub(crate) fn settle(&mut self, env: &dyn Env, out: &mut Effects) {
        let nobody = self.waiters.is_empty() && self.entrants == 0;
        let mut idle = self.lanes.iter().filter(|lane| lane.is_idle_ask()).count();
        let wanted = self.waiters.len() + usize::try_from(self.entrants).unwrap_or_default();
        let mut at = 0;
        while let Some(lane) = self.lanes.get_mut(at) {
            if lane.is_idle_ask() && idle > wanted {
                idle -= 1;
                // Rule 1: what was asked for nobody is withdrawn.
                out.withdrawals.extend(self.remove(at).into_release(env));
                continue;
            }
            if !lane.is_free() || lane.lease().is_some_and(Lease::lingers) {
                lane.free_since = None;
            } else if nobody && matches!(lane.standing, Standing::Asking(_)) {
                out.withdrawals.extend(self.remove(at).into_release(env));
                continue;
            } else if nobody {
                out.leaves = true;
            } else if lane.free_since.is_none() {
                lane.free_since = Some(env.now());
            }
            at += 1;
        }
        if nobody {
            self.wakes = 1;
            return;
        }
        if self.needs_task(env) {
            mutant!(FreeLeaseUntold => return);
            out.woken.extend(self.waiters.wake_first());
            self.is_tracked |= self.waiters.first_awake().is_some() || self.lanes.iter().any(Lane::is_free);
        } else {
            self.wakes = 1;
        }
    }

    /// Whether there is something to do for a task that waits: to take what lies free, or to ask.
    pub(super) fn needs_task(&self, env: &dyn Env) -> bool {
        if self.waiters.is_empty() {
            return false;
        }
        if self.pauses.as_ref().is_some_and(|pauses| !pauses.has_passed_at(env.now())) {
            return false;
        }
        if self.lanes.iter().any(|lane| lane.is_free() && !lane.lease().is_some_and(Lease::lingers)) {
            return true;
        }
        let idle = self.lanes.iter().filter(|lane| lane.is_idle_ask()).count();
        let has_unsent =
            self.lanes.iter().any(|lane| lane.is_idle_ask() && !lane.pending().is_some_and(PendingAsk::only_waits));
        has_unsent || (idle < self.without_ask() && self.has_room_for_entrant(env))
    }

    /// Takes a lane out. The task that acts for it waits again.
    pub(super) fn remove(&mut self, at: usize) -> Lane {
        let lane = self.lanes.remove(at);
        if let Some(acting) = lane.acting.filter(|acting| !acting.releases) {
            self.waiters.note_asleep(acting.id);
        }
        self.has_new_look |= lane.lease().is_some_and(|lease| lease.upkeep.look_at.is_some());
        lane
    }

    /// Nobody asks the store for so long.
    pub(super) fn pause(&mut self, pause: Duration, now: Moment) {
        if self.pauses.as_ref().is_none_or(|pauses| pauses.has_passed_at(now)) {
            self.pauses = Some(Box::new(Deadline::new(now, pause)));
            self.has_new_look = true;
        }
    }

    /// Takes out all waiters that are refused, to wake them.
    pub(crate) fn close(&mut self, is_refused: impl Fn(&Waiter) -> bool) -> Vec<Waker> {
        self.waiters.take_if(is_refused)
    }
}

/// Whether one more lane fits beside so many.
pub(super) fn has_room(env: &dyn Env, lanes: usize) -> bool {
    match env.share() {
        Some(share) if share != Share::READ => share.fits_beside(lanes),
        _ => lanes == 0,
    }
}
