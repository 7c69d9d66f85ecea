//! [`WaitQueue`]: tasks that wait, in the order in which they are called.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Duration;

use super::request::ResolvedRequest;
use crate::timing::TURN_PATIENCE;

/// Tasks that wait, by their ids: the smallest is the first. Who is called is taken out, so a task that finds itself gone was called.
///
/// Wakers leave the queue only to be called, or to be dropped, without any lock: a waker may be the last that knows of its task,
/// whose end comes back to the lock.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    waiters: BTreeMap<u64, Waiter>,
    /// How many of them want a fencing token.
    fenced: u32,
    /// The id before that of the first task. Tasks that come in front of all others get the ids below it.
    base: u64,
    last: u64,
    in_front: u64,
}

/// A task that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// Calls the task. Before its first poll nobody.
    pub(crate) waker: Waker,
    pub(crate) fenced: bool,
    /// How long the task may take to come when it is called.
    pub(crate) patience: Duration,
}

impl Waiter {
    pub(crate) fn new(request: &ResolvedRequest) -> Self {
        Self { waker: Waker::noop().clone(), fenced: request.fenced, patience: TURN_PATIENCE }
    }
}

impl WaitQueue {
    /// An empty queue, whose ids are around `base`.
    pub(crate) const fn around(base: u64) -> Self {
        Self { waiters: BTreeMap::new(), fenced: 0, base, last: 0, in_front: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// How many want a fencing token.
    pub(super) fn fenced(&self) -> u32 {
        self.fenced
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        self.waiters.keys().copied()
    }

    /// An id behind all others.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.last += 1;
        self.base + self.last
    }

    /// An id in front of all others.
    pub(crate) fn id_in_front(&mut self) -> u64 {
        self.in_front += 1;
        self.base - self.in_front
    }

    pub(crate) fn add(&mut self, id: u64, waiter: Waiter) {
        self.fenced += u32::from(waiter.fenced);
        self.waiters.insert(id, waiter);
    }

    /// A task is polled: from now on `waker` calls it. Returns what the task left behind, or `None` when it was called.
    pub(crate) fn poll(&mut self, id: u64, waker: &Waker) -> Option<Waker> {
        let waiter = self.waiters.get_mut(&id)?;
        let is_known = waiter.waker.will_wake(waker);
        Some(if is_known { Waker::noop().clone() } else { std::mem::replace(&mut waiter.waker, waker.clone()) })
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        self.fenced -= u32::from(waiter.fenced);
        Some(waiter)
    }

    /// Takes the first one.
    pub(crate) fn pop(&mut self) -> Option<(u64, Waiter)> {
        let (id, waiter) = self.waiters.pop_first()?;
        self.fenced -= u32::from(waiter.fenced);
        Some((id, waiter))
    }

    /// Takes all of them, to call them.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Waker> + use<> {
        self.fenced = 0;
        std::mem::take(&mut self.waiters).into_values().map(|waiter| waiter.waker)
    }
}
