//! How a task enters and leaves, and what follows from each change: [`Lock::settle`].
//!
//! A store without a queue is polled. A refused ask is over. The next one follows after a random pause, under another token if a part of
//! the first may stand. No process learns that others wait, and none has a place among them. So a process whose tasks have handed a lease
//! over for long lets it go, and then pauses longer than the others.

use std::hash::{BuildHasher, RandomState};
use std::task::Waker;
use std::time::Duration;

use super::request::ResolvedRequest;
use super::wait_queue::Waiter;
use super::{Effects, Env, Lane, Lease, Lock, Standing, Started};
use crate::clock::{Deadline, Moment};
use crate::protocol::Release;
use crate::share::Share;
use crate::token::Token;

#[derive(Debug)]
pub(crate) enum Entered {
    /// The task `id` is first. The process may have a lease.
    First { id: u64, has_lease: bool },
    /// The task `id` has to wait.
    Waits(u64),
    /// The task shares the hold of other readers.
    Joined(Started),
    /// A task here holds the lock, asks for it or waits for it, and this task won't wait.
    Taken,
    /// A task here has the lock or asks for it, and this task replaces the holder.
    InTheWay,
}

impl Lock {
    /// Enters a task. It is to be [polled](Lock::poll) if it is `First`, and to be admitted to [wait](Lock::wait) if it `Waits`.
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
        if request.replaces() && self.counts_if_unused().is_none() {
            return Entered::InTheWay;
        }
        // A grant lies free, an ask has no task, or one more task may ask.
        let is_left = self.entrants == 0 && self.lanes.iter().any(|lane| lane.is_free() || lane.is_idle_ask());
        if self.waiters.has_precedence(id) && (is_left || self.has_room_for_entrant(env)) {
            if request.replaces() {
                self.newest = id;
            }
            self.entrants += 1;
            return Entered::First { id, has_lease: self.leases().next().is_some() };
        }
        if request.is_try() { Entered::Taken } else { Entered::Waits(id) }
    }

    /// Enters a request that replaces the holder, in front of all others (rule 25). If the process has a lease: `Err` with its token. An
    /// older request of that kind is woken, and fails.
    pub(crate) fn enter_in_front(&mut self, env: &dyn Env, out: &mut Effects) -> Result<u64, Token> {
        if let Some(lease) = self.leases().next() {
            return Err(lease.token.clone());
        }
        self.entrants += 1;
        mutant!(NewestComesLast => {
            self.newest = self.waiters.new_id();
            return Ok(self.newest);
        });
        let id = self.waiters.id_in_front();
        let older = std::mem::replace(&mut self.newest, id);
        self.waiters.wake(older, &mut out.woken);
        self.withdraw_asks(env, out);
        Ok(id)
    }

    /// Withdraws what the tasks here ask for, because another task goes first. They wait again.
    pub(super) fn withdraw_asks(&mut self, env: &dyn Env, out: &mut Effects) {
        while let Some(at) = self.lanes.iter().position(|lane| lane.pending().is_some()) {
            out.withdrawals.extend(self.release_lane(at, env));
            out.is_overtaken = true;
        }
    }

    fn has_room_for_entrant(&self, env: &dyn Env) -> bool {
        let entrants = usize::try_from(self.entrants).unwrap_or(usize::MAX);
        has_room(env, self.lanes.len().saturating_add(entrants))
    }

    /// Tasks in the queue that act for no lane.
    pub(super) fn idle_waiters(&self) -> usize {
        let acting = self.lanes.iter().filter_map(|lane| lane.acting);
        self.waiters.len() - acting.filter(|acting| self.waiters.has(acting.id)).count()
    }

    /// How many tasks a new one waits behind. A task that asks counts too.
    pub(crate) fn waiting(&self) -> usize {
        let acting = self.lanes.iter().filter(|lane| lane.acting.is_some() && lane.lease().is_none());
        let acting = acting.filter(|lane| lane.acting.is_some_and(|acting| !self.waiters.has(acting.id)));
        self.waiters.len() + acting.count()
    }

    pub(crate) fn wait(&mut self, id: u64, request: &ResolvedRequest) {
        self.waiters.add(id, Waiter::new(request));
    }

    /// Notes that a task that has entered is polled for the first time, or gives up before.
    pub(crate) fn on_first_poll(&mut self) {
        self.entrants = self.entrants.saturating_sub(1);
    }

    /// The task `id` waits for something other than the lock, for at most this long. `waker` wakes it as well.
    pub(crate) fn park(
        &mut self,
        id: u64,
        request: &ResolvedRequest,
        waker: Waker,
        pause: Duration,
        now: Moment,
        out: &mut Effects,
    ) {
        self.stop_acting(id);
        if !self.waiters.has(id) {
            self.waiters.add(id, Waiter::new(request));
        }
        self.waiters.on_poll(id);
        self.register(id, waker, out);
        self.pause(pause, now);
    }

    pub(crate) fn leave(&mut self, id: u64, out: &mut Effects) {
        mutant!(DeadTaskStays => return);
        let was_first = self.waiters.first_awake() == Some(id);
        self.forget_waiter(id, out);
        self.stop_acting(id);
        if was_first && self.lanes.iter().any(Lane::is_idle_ask) {
            // From now on the next task watches when the ask has to be repeated.
            self.waiters.wake_first(&mut out.woken);
        }
    }

    /// The task `id` stops waiting for an answer: to its command, or to its release.
    pub(crate) fn stop_acting(&mut self, id: u64) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.is_acting(id)) {
            lane.acting = None;
        }
    }

    /// Removes the task `id` from the queue.
    pub(super) fn forget_waiter(&mut self, id: u64, out: &mut Effects) {
        out.old_wakers.extend(self.waiters.remove(id).and_then(|waiter| waiter.waker));
    }

    /// Runs after each change: releases what no task here needs, and wakes the next task if there is something for it to do.
    pub(crate) fn settle(&mut self, env: &dyn Env, out: &mut Effects) {
        if let [lane] = self.lanes.as_mut_slice()
            && (lane.acting.is_some() || lane.lease().is_some_and(|lease| lease.hold.is_some()))
            && !has_room(env, 1)
        {
            // The usual case: the only lane is in use, and no permit is left to ask for.
            (lane.free_since, self.needy_ticks) = (None, 0);
            return;
        }
        let nobody = self.waiters.is_empty() && self.entrants == 0;
        let wanted = self.waiters.len() + usize::try_from(self.entrants).unwrap_or_default();
        let mut idle = self.lanes.iter().filter(|lane| lane.is_idle_ask()).count();
        let mut at = 0;
        while let Some(lane) = self.lanes.get_mut(at) {
            if lane.is_idle_ask() && idle > wanted {
                idle -= 1;
                // Rule 1: an ask that no task needs is withdrawn.
                out.withdrawals.extend(self.release_lane(at, env));
                continue;
            }
            if !lane.is_free() || lane.lease().is_some_and(Lease::lingers) {
                lane.free_since = None;
            } else if nobody && matches!(lane.standing, Standing::Asking(_)) {
                out.withdrawals.extend(self.release_lane(at, env));
                continue;
            } else if nobody {
                out.leaves = true;
            } else {
                lane.free_since.get_or_insert_with(|| env.now());
                // Also for a task that has not been polled since it entered.
                self.is_tracked = true;
            }
            at += 1;
        }
        if nobody {
            self.needy_ticks = 0;
            return;
        }
        if self.needs_task(env) {
            mutant!(FreeLeaseUntold => return);
            self.is_tracked |= self.waiters.wake_first(&mut out.woken);
        } else {
            self.needy_ticks = 0;
        }
    }

    /// Whether there is something to do for a task that waits: take what lies free, or ask.
    pub(super) fn needs_task(&self, env: &dyn Env) -> bool {
        if self.waiters.is_empty() || self.pauses.as_ref().is_some_and(|pauses| !pauses.has_passed_at(env.now())) {
            return false;
        }
        if self.lanes.iter().any(|lane| lane.is_free() && !lane.lease().is_some_and(Lease::lingers)) {
            return true;
        }
        let idle_asks = || self.lanes.iter().filter(|lane| lane.is_idle_ask()).filter_map(Lane::pending);
        idle_asks().any(|pending| !pending.only_waits())
            || (self.has_room_for_entrant(env) && idle_asks().count() < self.idle_waiters())
    }

    /// Removes a lane. The task that acts for it waits again.
    pub(super) fn remove(&mut self, at: usize) -> Option<Lane> {
        self.on_removal(at);
        (at < self.lanes.len()).then(|| self.lanes.remove(at))
    }

    /// Removes a lane. Returns the release, or the withdrawal, of what may be in the store.
    pub(super) fn release_lane(&mut self, at: usize, env: &dyn Env) -> Option<Release> {
        let release = self.lanes.get(at)?.release(env);
        self.on_removal(at);
        if at + 1 == self.lanes.len() {
            // The usual case: dropped in place.
            self.lanes.truncate(at);
        } else {
            drop(self.lanes.remove(at));
        }
        release
    }

    fn on_removal(&mut self, at: usize) {
        let Some(lane) = self.lanes.get(at) else { return };
        if let Some(acting) = lane.acting {
            self.waiters.note_asleep(acting.id);
        }
        self.has_new_look |= lane.lease().is_some_and(|lease| lease.upkeep.look_at.is_some());
    }

    /// No task asks the store for this long.
    pub(super) fn pause(&mut self, pause: Duration, now: Moment) {
        if self.pauses.as_ref().is_none_or(|pauses| pauses.has_passed_at(now)) {
            self.pauses = Some(Box::new(Deadline::new(now, pause)));
            self.has_new_look = true;
        }
    }

    /// Removes the waiters that are refused, and returns their wakers.
    pub(crate) fn close(&mut self, is_refused: impl Fn(&Waiter) -> bool) -> Vec<Waker> {
        self.waiters.take_if(is_refused)
    }
}

/// Whether one more lane fits in addition to these.
pub(super) fn has_room(env: &dyn Env, lanes: usize) -> bool {
    match env.share() {
        Some(share) if share != Share::READ => share.fits_beside(lanes),
        _ => lanes == 0,
    }
}

/// A random duration between the two.
pub(super) fn pause_between([shortest, longest]: [Duration; 2]) -> Duration {
    // In a simulated world the seed decides.
    #[cfg(test)]
    let chance = crate::simulation::time::chance().unwrap_or_else(|| RandomState::new().hash_one(()));
    #[cfg(not(test))]
    let chance = RandomState::new().hash_one(());
    let part = f64::from(u32::try_from(chance % 1024).unwrap_or_default()) / 1024.0;
    shortest + longest.saturating_sub(shortest).mul_f64(part)
}
