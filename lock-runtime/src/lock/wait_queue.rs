//! [`WaitQueue`]: tasks that wait, in the order in which they are called.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use super::request::ResolvedRequest;

/// A queue of no more places is not made smaller.
const FEW: usize = 64;

/// Tasks that wait, by their ids: the smallest is the first. Who is called is taken out, so a task that finds itself gone was called.
///
/// To join at the end and to be called costs the same however many wait. Who leaves from the middle leaves a hole; the holes are closed
/// when there are more of them than tasks.
///
/// Wakers are cloned before they come into the queue, and leave it only to be called, or to be dropped, without any lock: a waker may be
/// the last that knows of its task, whose end comes back to the lock.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    /// Boxed: for most locks nobody ever waits.
    places: Option<Box<Places>>,
    /// The smallest and the greatest id that a task was given.
    first: u64,
    last: u64,
}

#[derive(Debug, Default)]
struct Places {
    /// In the order of the ids. Neither the first place nor the last is a hole.
    all: VecDeque<(u64, Option<Waiter>)>,
    /// How many tasks wait.
    len: usize,
    /// How many of them want a fencing token.
    fenced: u32,
}

/// A task that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// Calls the task. Before its first poll nobody.
    pub(crate) waker: Waker,
    fenced: bool,
    /// Whether it waits inside of a body of its manager.
    pub(crate) is_inside: bool,
    /// How long the task may take to come when it is called, if it has more time than others. Boxed: only who came late has.
    pub(super) patience: Option<Box<Duration>>,
}

impl Waiter {
    pub(crate) fn new(request: &ResolvedRequest) -> Self {
        let &ResolvedRequest { fenced, is_inside, .. } = request;
        Self { waker: Waker::noop().clone(), fenced, is_inside, patience: None }
    }

    /// A task that may take so long to come when it is called.
    pub(crate) fn with_patience(self, patience: Duration) -> Self {
        Self { patience: Some(Box::new(patience)), ..self }
    }
}

impl WaitQueue {
    /// An empty queue, whose ids are around `base`.
    pub(crate) const fn around(base: u64) -> Self {
        Self { places: None, first: base, last: base }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.places.as_ref().map_or(0, |places| places.len)
    }

    /// How many want a fencing token.
    pub(super) fn fences_wanted(&self) -> u32 {
        self.places.as_ref().map_or(0, |places| places.fenced)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> {
        let all = self.places.iter().flat_map(|places| &places.all);
        all.filter(|(_, waiter)| waiter.is_some()).map(|(id, _)| *id)
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
        self.places.get_or_insert_default().add(id, waiter);
    }

    /// A task is polled: from now on `waker` calls it. Returns a waker that is not needed, to be dropped without any lock: as the error
    /// when the task was called.
    pub(crate) fn poll(&mut self, id: u64, waker: Waker) -> Result<Waker, Waker> {
        let Some(waiter) = self.waiter_mut(id) else { return Err(waker) };
        Ok(if is_known(&waiter.waker, &waker) { waker } else { std::mem::replace(&mut waiter.waker, waker) })
    }

    fn waiter_mut(&mut self, id: u64) -> Option<&mut Waiter> {
        let places = self.places.as_mut()?;
        let at = places.find(id).ok()?;
        places.all.get_mut(at)?.1.as_mut()
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Waiter> {
        let places = self.places.as_mut()?;
        let at = places.find(id).ok()?;
        let waiter = places.all.get_mut(at)?.1.take()?;
        places.on_taken(&waiter);
        Some(waiter)
    }

    /// Takes the first one.
    pub(crate) fn pop(&mut self) -> Option<(u64, Waiter)> {
        let places = self.places.as_mut()?;
        let (id, waiter) = places.all.pop_front()?;
        let waiter = waiter?;
        places.on_taken(&waiter);
        Some((id, waiter))
    }

    /// Takes some of them, to call them.
    pub(crate) fn take_if(&mut self, condition: impl Fn(&Waiter) -> bool) -> Vec<Waker> {
        let all = self.places.iter().flat_map(|places| &places.all);
        let is_meant = |waiter: &Option<Waiter>| waiter.as_ref().is_some_and(&condition);
        let meant: Vec<_> = all.filter(|(_, waiter)| is_meant(waiter)).map(|(id, _)| *id).collect();
        meant.into_iter().filter_map(|id| self.remove(id)).map(|waiter| waiter.waker).collect()
    }

    /// Takes all of them, to call them.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Waker> + use<> {
        let all = self.places.take().map(|places| places.all).unwrap_or_default();
        all.into_iter().filter_map(|(_, waiter)| waiter.map(|waiter| waiter.waker))
    }
}

impl Places {
    fn add(&mut self, id: u64, waiter: Waiter) {
        self.fenced += u32::from(waiter.fenced);
        self.len += 1;
        if self.all.back().is_none_or(|(last, _)| *last < id) {
            return self.all.push_back((id, Some(waiter)));
        }
        match self.find(id).map(|at| self.all.get_mut(at)) {
            Ok(hole) => drop(hole.map(|(_, left)| left.replace(waiter))),
            Err(at) => self.all.insert(at, (id, Some(waiter))),
        }
    }

    /// Where the place of this id is, or would be. Who was called was in front of all who wait.
    fn find(&self, id: u64) -> Result<usize, usize> {
        if self.all.front().is_none_or(|(first, _)| id < *first) {
            return Err(0);
        }
        self.all.binary_search_by_key(&id, |(id, _)| *id)
    }

    fn on_taken(&mut self, waiter: &Waiter) {
        self.len -= 1;
        self.fenced -= u32::from(waiter.fenced);
        let is_hole = |place: Option<&(u64, Option<Waiter>)>| place.is_some_and(|(_, waiter)| waiter.is_none());
        while is_hole(self.all.front()) {
            self.all.pop_front();
        }
        while is_hole(self.all.back()) {
            self.all.pop_back();
        }
        if self.all.len() > 2 * self.len + FEW {
            self.all.retain(|(_, waiter)| waiter.is_some());
        }
        if self.all.capacity() > 4 * self.len + FEW {
            self.all.shrink_to(2 * self.len + FEW);
        }
    }
}

fn is_known(known: &Waker, waker: &Waker) -> bool {
    mutant!(WakerNotTaken => return true);
    known.will_wake(waker)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use futures_util::task::{ArcWake, waker};
    use proptest::prelude::*;

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
        Waiter { waker: Waker::noop().clone(), fenced, is_inside: false, patience: None }
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

    /// What happens to a queue: a task comes, at the end, in front or again at a place that was left, one leaves, one is called.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Comes,
        InFront,
        Again(u8),
        Leaves(u8),
        Called,
    }

    proptest! {
        /// The plain queue is a sorted map. Many come to each that goes, so that there are holes.
        #[test]
        fn it_is_a_queue_by_id_whatever_happens(events in prop::collection::vec(prop_oneof![
            4 => Just(Event::Comes),
            1 => Just(Event::InFront),
            1 => any::<u8>().prop_map(Event::Again),
            4 => any::<u8>().prop_map(Event::Leaves),
            1 => Just(Event::Called),
        ], 0..600)) {
            let (mut queue, mut plain, mut left) = (WaitQueue::around(1000), BTreeMap::new(), Vec::new());
            let one_of = |ids: &[u64], which: u8| ids.get(usize::from(which) % ids.len().max(1)).copied();
            for event in events {
                let come = match event {
                    Event::Comes => Some(queue.new_id()),
                    Event::InFront => Some(queue.id_in_front()),
                    Event::Again(which) => one_of(&left, which),
                    Event::Leaves(_) | Event::Called => None,
                };
                if let Some(id) = come {
                    left.retain(|other| *other != id);
                    queue.add(id, waiter(id % 2 == 0));
                    plain.insert(id, id % 2 == 0);
                } else if let Event::Leaves(which) = event {
                    let ids: Vec<_> = plain.keys().copied().collect();
                    let Some(id) = one_of(&ids, which) else { continue };
                    prop_assert_eq!(queue.remove(id).map(|waiter| waiter.fenced), plain.remove(&id));
                    prop_assert!(queue.remove(id).is_none() && queue.poll(id, Waker::noop().clone()).is_err());
                    left.push(id);
                } else {
                    let called = queue.pop().map(|(id, waiter)| (id, waiter.fenced));
                    left.extend(called.map(|(id, _)| id));
                    prop_assert_eq!(called, plain.pop_first());
                }
                prop_assert!(queue.ids().eq(plain.keys().copied()));
                prop_assert_eq!((queue.len(), queue.is_empty()), (plain.len(), plain.is_empty()));
                prop_assert_eq!(queue.fences_wanted() as usize, plain.values().filter(|fenced| **fenced).count());
                prop_assert!(plain.keys().all(|id| queue.poll(*id, Waker::noop().clone()).is_ok()));
                let places = queue.places.as_ref().map_or(0, |places| places.all.len());
                prop_assert!(places <= 2 * queue.len() + FEW);
            }
        }
    }

    #[test]
    fn a_crowd_that_is_gone_leaves_no_room_behind() {
        let mut queue = WaitQueue::around(0);
        for id in 0..100_000 {
            queue.add(id, waiter(false));
        }
        // The first one stays.
        assert!((1..100_000).all(|id| queue.remove(id).is_some()));
        let room = queue.places.unwrap().all.capacity();
        assert!(room <= 4 + 2 * FEW, "{room}");
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
            assert!(queue.poll(1, task(number)).is_ok(), "it waits");
        }
        queue.take_all().for_each(Waker::wake);
        assert!(queue.poll(1, task(2)).is_err(), "it was called");
        let woken = woken.lock();
        woken.clone()
    }

    #[test]
    fn the_task_that_polled_the_future_last_is_woken() {
        assert_eq!(woken(None), [2]);
        assert_eq!(woken(Some(Mutant::WakerNotTaken)), [0; 0]);
    }
}
