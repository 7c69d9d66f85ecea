//! [`WaitQueue`]: tasks that wait, in the order in which they are called.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Duration;

use super::request::ResolvedRequest;

/// Tasks that wait, by their ids: the smallest is the first. Who is called is taken out, so a task that finds itself gone was called.
///
/// Wakers leave the queue only to be called, or to be dropped, without any lock: a waker may be the last that knows of its task,
/// whose end comes back to the lock.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    waiters: BTreeMap<u64, Waiter>,
    /// How many of them want a fencing token.
    fenced: u32,
    /// The smallest and the greatest id that a task was given.
    first: u64,
    last: u64,
}

/// A task that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// Calls the task. Before its first poll nobody.
    pub(crate) waker: Waker,
    fenced: bool,
    /// How long the task may take to come when it is called, if it has more time than others. Boxed: only who came late has.
    pub(super) patience: Option<Box<Duration>>,
}

impl Waiter {
    pub(crate) fn new(request: &ResolvedRequest) -> Self {
        Self { waker: Waker::noop().clone(), fenced: request.fenced, patience: None }
    }

    /// A task that may take so long to come when it is called.
    pub(crate) fn with_patience(self, patience: Duration) -> Self {
        Self { patience: Some(Box::new(patience)), ..self }
    }
}

impl WaitQueue {
    /// An empty queue, whose ids are around `base`.
    pub(crate) const fn around(base: u64) -> Self {
        Self { waiters: BTreeMap::new(), fenced: 0, first: base, last: base }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// How many want a fencing token.
    pub(super) fn fences_wanted(&self) -> u32 {
        self.fenced
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        self.waiters.keys().copied()
    }

    /// An id behind all others.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// An id in front of all others.
    pub(crate) fn id_in_front(&mut self) -> u64 {
        self.first -= 1;
        self.first
    }

    pub(crate) fn add(&mut self, id: u64, waiter: Waiter) {
        self.fenced += u32::from(waiter.fenced);
        self.waiters.insert(id, waiter);
    }

    /// A task is polled: from now on `waker` calls it. Returns what the task left behind, or `None` when it was called.
    pub(crate) fn poll(&mut self, id: u64, waker: &Waker) -> Option<Waker> {
        let waiter = self.waiters.get_mut(&id)?;
        let is_known = is_known(&waiter.waker, waker);
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

fn is_known(known: &Waker, waker: &Waker) -> bool {
    mutant!(WakerNotTaken => return true);
    known.will_wake(waker)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::task::{ArcWake, waker};

    use super::*;
    use crate::mutants::{Mutant, Seeded};
    use crate::mutex::Mutex;

    /// A task, by its number, and the numbers of those that were woken.
    struct Task(u64, Arc<Mutex<Vec<u64>>>);

    impl ArcWake for Task {
        fn wake_by_ref(task: &Arc<Self>) {
            task.1.lock().push(task.0);
        }
    }

    fn waiter(fenced: bool) -> Waiter {
        Waiter { waker: Waker::noop().clone(), fenced, patience: None }
    }

    #[test]
    fn the_first_who_came_is_called_first_but_for_those_who_come_in_front() {
        let mut queue = WaitQueue::around(100);
        let ids = [queue.new_id(), queue.new_id(), queue.id_in_front(), queue.id_in_front()];
        for (id, fenced) in ids.into_iter().zip([true, false, true, false]) {
            queue.add(id, waiter(fenced));
        }
        assert_eq!((queue.len(), queue.fences_wanted()), (4, 2));
        let mut called = || queue.pop().map(|(id, _)| id);
        assert_eq!(
            [called(), called(), called(), called(), called()],
            [Some(98), Some(99), Some(101), Some(102), None]
        );
        assert_eq!((queue.len(), queue.fences_wanted()), (0, 0));
    }

    #[test]
    fn a_task_that_leaves_is_not_called_and_leaves_no_count() {
        let mut queue = WaitQueue::around(0);
        queue.add(1, waiter(true));
        queue.add(2, waiter(true));
        assert!(queue.remove(1).is_some() && queue.remove(1).is_none());
        assert_eq!((queue.ids().collect::<Vec<_>>(), queue.fences_wanted()), (vec![2], 1));
        assert_eq!(queue.take_all().count(), 1);
        assert_eq!((queue.is_empty(), queue.fences_wanted()), (true, 0));
    }

    /// The tasks that are woken when a future is called that was polled by two tasks, one after another.
    fn woken(bug: Option<Mutant>) -> Vec<u64> {
        let _seeded = Seeded::begin(bug);
        let woken = Arc::default();
        let task = |number| waker(Arc::new(Task(number, Arc::clone(&woken))));
        let mut queue = WaitQueue::around(0);
        queue.add(1, waiter(false));
        for number in [1, 2, 2] {
            assert!(queue.poll(1, &task(number)).is_some(), "it waits");
        }
        queue.take_all().for_each(Waker::wake);
        assert!(queue.poll(1, &task(2)).is_none(), "it was called");
        let woken = woken.lock();
        woken.clone()
    }

    #[test]
    fn the_task_that_polled_the_future_last_is_woken() {
        assert_eq!(woken(None), [2]);
        assert_eq!(woken(Some(Mutant::WakerNotTaken)), [0; 0]);
    }
}
