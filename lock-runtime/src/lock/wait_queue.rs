//! [`WaitQueue`]: the tasks that wait, in order, and which of them has been woken.
//!
//! A wake is a hint. A woken task may be polled late, or never: its thread is busy, or its future sits behind another one. So a task keeps
//! its place until it leaves. A woken task that is not polled within one to two ticks of the keeper is *asleep*: others take precedence over it until
//! it is polled. Each time that happens it gets twice as many ticks from then on, so that a process whose tasks are all polled late still
//! serves each of them.
//!
//! Joining at the end, waking the next task and asking which one has precedence cost the same however many wait. A task that leaves from
//! the middle leaves a hole; the holes are closed when there are more of them than tasks.
//!
//! Wakers are cloned before they enter the queue, and are woken or dropped after they have left it, without any lock: a waker may be the
//! last reference to its task, and dropping the task's futures calls back into the lock.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::task::Waker;

use super::Wakes;
use super::request::ResolvedRequest;

/// A queue with at most this many places is never shrunk.
const FEW: usize = 64;
/// The most ticks for which a woken task keeps its precedence.
const MOST_TICKS: u8 = 128;
/// How long a request that replaces the holder keeps its precedence: 50 ms. Others may have waited for less.
const NEWEST_TICKS: u8 = 10;

#[derive(Debug)]
pub(crate) struct WaitQueue {
    /// Boxed: for most locks no task ever waits.
    places: Option<Box<Places>>,
    /// The smallest and the greatest id given out so far.
    first: u64,
    last: u64,
}

#[derive(Debug, Default)]
struct Places {
    /// Ordered by id. Neither the first place nor the last is a hole.
    all: VecDeque<(u64, Option<Waiter>)>,
    len: usize,
    fenced: u32,
    /// All tasks with smaller ids are asleep.
    awake_from: u64,
}

#[derive(Debug)]
pub(crate) struct Waiter {
    /// `None` before the first poll, and once the task is woken.
    pub(super) waker: Option<Waker>,
    fenced: bool,
    /// Whether it waits inside a body of its manager.
    pub(crate) is_inside: bool,
    state: State,
    /// For how many ticks it keeps its precedence once it is woken.
    ticks: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    /// Woken, and not polled since. It keeps its precedence for this many more ticks.
    Woken(u8),
    /// Woken too long ago, and not polled since.
    Asleep,
}

impl Waiter {
    pub(crate) fn new(request: &ResolvedRequest) -> Self {
        let &ResolvedRequest { fenced, is_inside, .. } = request;
        let ticks = if request.replaces() { NEWEST_TICKS } else { 1 };
        Self { waker: None, fenced, is_inside, state: State::Waits, ticks }
    }
}

impl Default for WaitQueue {
    fn default() -> Self {
        // Leaves ids free at both ends. None is zero.
        Self { places: None, first: 1 << 62, last: 1 << 62 }
    }
}

impl WaitQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.places.as_ref().map_or(0, |places| places.len)
    }

    pub(super) fn fences_wanted(&self) -> u32 {
        self.places.as_ref().map_or(0, |places| places.fenced)
    }

    pub(super) fn last(&self) -> Option<u64> {
        self.places.as_ref()?.all.back().map(|(id, _)| *id)
    }

    #[cfg(test)]
    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> {
        let all = self.places.iter().flat_map(|places| &places.all);
        all.filter(|(_, waiter)| waiter.is_some()).map(|(id, _)| *id)
    }

    pub(crate) fn new_id(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn id_in_front(&mut self) -> u64 {
        self.first -= 1;
        self.first
    }

    /// Whether no task that is awake waits in front of the task `id`.
    pub(super) fn has_precedence(&self, id: u64) -> bool {
        mutant!(NewcomersOvertake => return true);
        self.first_awake().is_none_or(|first| id <= first)
    }

    pub(super) fn first_awake(&self) -> Option<u64> {
        let places = self.places.as_ref()?;
        if let Some((id, Some(waiter))) = places.all.front()
            && waiter.is_awake()
        {
            return Some(*id);
        }
        let from = places.find(places.awake_from).unwrap_or_else(|at| at);
        let is_awake = |(_, waiter): &&(u64, Option<Waiter>)| waiter.as_ref().is_some_and(Waiter::is_awake);
        places.all.range(from..).find(is_awake).map(|(id, _)| *id)
    }

    /// Adds a task, or makes it wait again.
    pub(crate) fn add(&mut self, id: u64, waiter: Waiter) {
        self.places.get_or_insert_default().add(id, waiter);
    }

    pub(super) fn has(&self, id: u64) -> bool {
        self.places.as_ref().is_some_and(|places| places.waiter(id).is_some())
    }

    /// Marks the task as awake. Returns whether it waits.
    pub(super) fn on_poll(&mut self, id: u64) -> bool {
        let Some(places) = self.places.as_mut() else { return false };
        let Some(waiter) = places.waiter_mut(id) else { return false };
        if std::mem::replace(&mut waiter.state, State::Waits) == State::Asleep {
            waiter.ticks = waiter.ticks.saturating_mul(2).min(MOST_TICKS);
            places.awake_from = places.awake_from.min(id);
        }
        true
    }

    /// Marks the task as not polled: others take precedence over it.
    pub(super) fn note_asleep(&mut self, id: u64) {
        let places = self.places.get_or_insert_default();
        match places.waiter_mut(id) {
            Some(waiter) => waiter.state = State::Asleep,
            None => {
                // Only its place is known.
                places.add(id, Waiter { waker: None, fenced: false, is_inside: false, state: State::Asleep, ticks: 1 });
            }
        }
    }

    /// From now on `waker` wakes the task. Returns a waker to drop without any lock.
    pub(super) fn register(&mut self, id: u64, waker: Waker) -> Option<Waker> {
        let Some(waiter) = self.places.as_mut().and_then(|places| places.waiter_mut(id)) else { return Some(waker) };
        let is_known = |known: &Waker| mutant!(WakerNotTaken => true, else known.will_wake(&waker));
        if waiter.waker.as_ref().is_some_and(is_known) { Some(waker) } else { waiter.waker.replace(waker) }
    }

    /// Registers the first waker of a task. Returns `false` if the task was woken before it had one.
    pub(super) fn register_unwoken(&mut self, id: u64, waker: &mut Option<Waker>) -> bool {
        let Some(waiter) = self.places.as_mut().and_then(|places| places.waiter_mut(id)) else { return false };
        let is_unwoken = waiter.state == State::Waits;
        if is_unwoken {
            waiter.waker = waker.take();
        }
        is_unwoken
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Waiter> {
        let places = self.places.as_mut()?;
        let at = places.find(id).ok()?;
        let waiter = places.all.get_mut(at)?.1.take()?;
        places.on_taken(&waiter);
        Some(waiter)
    }

    /// Wakes the first task that is not asleep, unless it was woken and has not been polled since. Returns whether there is one.
    pub(super) fn wake_first(&mut self, woken: &mut Wakes) -> bool {
        let first = self.first_awake();
        first.map(|id| self.wake(id, woken)).is_some()
    }

    /// Wakes a task, unless it was woken and has not been polled since.
    pub(super) fn wake(&mut self, id: u64, woken: &mut Wakes) {
        if let Some(waiter) = self.places.as_mut().and_then(|places| places.waiter_mut(id)) {
            waiter.wake(woken);
        }
    }

    pub(super) fn wake_all(&mut self, woken: &mut Wakes) {
        let all = self.places.iter_mut().flat_map(|places| &mut places.all);
        all.filter_map(|(_, waiter)| waiter.as_mut()).for_each(|waiter| waiter.wake(woken));
    }

    /// Handles a tick since the last wakes: tasks that were woken and not polled fall asleep. Wakes the next `count` tasks.
    pub(super) fn wake_next(&mut self, count: usize, woken: &mut Wakes) {
        let Some(places) = self.places.as_mut() else { return };
        let from = places.find(places.awake_from).unwrap_or_else(|at| at);
        let (mut left, mut is_front) = (count, true);
        for (id, waiter) in places.all.range_mut(from..) {
            let Some(waiter) = waiter else { continue };
            if let State::Woken(ticks) = &mut waiter.state {
                waiter.state = ticks.checked_sub(1).map_or(State::Asleep, State::Woken);
            }
            if waiter.state == State::Asleep {
                if is_front {
                    places.awake_from = *id + 1;
                }
                continue;
            }
            is_front = false;
            if left == 0 {
                return;
            }
            left -= 1;
            waiter.wake(woken);
        }
    }

    /// Removes the tasks that meet the `condition`, and returns their wakers.
    pub(crate) fn take_if(&mut self, condition: impl Fn(&Waiter) -> bool) -> Vec<Waker> {
        let all = self.places.iter().flat_map(|places| &places.all);
        let is_meant = |waiter: &Option<Waiter>| waiter.as_ref().is_some_and(&condition);
        let meant: Vec<_> = all.filter(|(_, waiter)| is_meant(waiter)).map(|(id, _)| *id).collect();
        meant.into_iter().filter_map(|id| self.remove(id)?.waker).collect()
    }
}

impl Waiter {
    fn is_awake(&self) -> bool {
        self.state != State::Asleep
    }

    fn wake(&mut self, woken: &mut Wakes) {
        if self.state == State::Waits {
            self.state = State::Woken(self.ticks);
            if let Some(waker) = self.waker.take() {
                woken.push(waker);
            }
        }
    }
}

impl Places {
    fn add(&mut self, id: u64, waiter: Waiter) {
        if let Some(known) = self.waiter_mut(id) {
            // It already waits.
            known.state = waiter.state;
            return;
        }
        self.fenced += u32::from(waiter.fenced);
        self.len += 1;
        self.awake_from = self.awake_from.min(id);
        if self.all.back().is_none_or(|(last, _)| *last < id) {
            return self.all.push_back((id, Some(waiter)));
        }
        match self.find(id).map(|at| self.all.get_mut(at)) {
            Ok(hole) => drop(hole.map(|(_, left)| left.replace(waiter))),
            Err(at) => self.all.insert(at, (id, Some(waiter))),
        }
    }

    fn waiter(&self, id: u64) -> Option<&Waiter> {
        self.all.get(self.find(id).ok()?)?.1.as_ref()
    }

    fn waiter_mut(&mut self, id: u64) -> Option<&mut Waiter> {
        let at = self.find(id).ok()?;
        self.all.get_mut(at)?.1.as_mut()
    }

    /// The index of this id, or where it would be. Most lookups are for the first or the last.
    fn find(&self, id: u64) -> Result<usize, usize> {
        let (Some((first, _)), Some((last, _))) = (self.all.front(), self.all.back()) else { return Err(0) };
        match (id.cmp(first), id.cmp(last)) {
            (Ordering::Less, _) => Err(0),
            (Ordering::Equal, _) => Ok(0),
            (_, Ordering::Equal) => Ok(self.all.len() - 1),
            (_, Ordering::Greater) => Err(self.all.len()),
            _ => self.all.binary_search_by_key(&id, |(id, _)| *id),
        }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use futures_util::task::{ArcWake, waker};
    use proptest::prelude::*;

    use super::*;
    use crate::mutants::{Mutant, Seeded};
    use crate::mutex::Mutex;

    struct Task(u64, Arc<Mutex<Vec<u64>>>);

    impl ArcWake for Task {
        fn wake_by_ref(task: &Arc<Self>) {
            task.1.lock().push(task.0);
        }
    }

    fn waiter(fenced: bool) -> Waiter {
        Waiter { waker: Some(Waker::noop().clone()), fenced, is_inside: false, state: State::Waits, ticks: 1 }
    }

    /// An event of a queue: a task joins at the end, in front, or again at its old place; a task leaves; a task is polled; the first one is
    /// woken; a tick passes.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Comes,
        InFront,
        Again(u8),
        Leaves(u8),
        Polled(u8),
        Woken,
        Tick(u8),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => Just(Event::Comes),
            1 => Just(Event::InFront),
            1 => any::<u8>().prop_map(Event::Again),
            4 => any::<u8>().prop_map(Event::Leaves),
            3 => any::<u8>().prop_map(Event::Polled),
            2 => Just(Event::Woken),
            2 => (0..8_u8).prop_map(Event::Tick),
        ]
    }

    /// The model's tick: tasks that were woken and not polled fall asleep, and the next ones are woken.
    fn tick(plain: &mut BTreeMap<u64, (State, u8)>, count: u8) {
        let mut left = count;
        for (state, ticks) in plain.values_mut() {
            match *state {
                State::Asleep => continue,
                State::Woken(0) => {
                    *state = State::Asleep;
                    continue;
                }
                State::Woken(more) => *state = State::Woken(more - 1),
                State::Waits => {}
            }
            if left == 0 {
                return;
            }
            left -= 1;
            if *state == State::Waits {
                *state = State::Woken(*ticks);
            }
        }
    }

    proptest! {
        /// The model is a sorted map. More tasks join than leave, so that there are holes.
        #[test]
        fn it_is_a_queue_by_id_whatever_happens(events in prop::collection::vec(event(), 0..600)) {
            let (mut queue, mut plain, mut left) = (WaitQueue::default(), BTreeMap::new(), Vec::new());
            for event in events {
                let ids: Vec<_> = plain.keys().copied().collect();
                let one_of = |ids: &[u64], which: u8| ids.get(usize::from(which) % ids.len().max(1)).copied();
                let come = match event {
                    Event::Comes => Some(queue.new_id()),
                    Event::InFront => Some(queue.id_in_front()),
                    Event::Again(which) => one_of(&left, which),
                    _ => None,
                };
                if let Some(id) = come {
                    left.retain(|other| *other != id);
                    queue.add(id, waiter(id % 2 == 0));
                    plain.insert(id, (State::Waits, 1));
                }
                match event {
                    Event::Leaves(which) => {
                        let Some(id) = one_of(&ids, which) else { continue };
                        prop_assert!(queue.remove(id).is_some() && plain.remove(&id).is_some() && !queue.has(id));
                        left.push(id);
                    }
                    Event::Polled(which) => {
                        let Some(id) = one_of(&ids, which) else { continue };
                        queue.on_poll(id);
                        drop(queue.register(id, Waker::noop().clone()));
                        let ticks = plain.get(&id).map_or(1, |(state, ticks)| {
                            if *state == State::Asleep { (ticks * 2).min(MOST_TICKS) } else { *ticks }
                        });
                        plain.insert(id, (State::Waits, ticks));
                    }
                    Event::Woken => {
                        let first = plain.values_mut().find(|(state, _)| *state != State::Asleep);
                        let is_woken = first.is_some_and(|(state, ticks)| {
                            let is_woken = *state == State::Waits;
                            if is_woken {
                                *state = State::Woken(*ticks);
                            }
                            is_woken
                        });
                        let mut woken = Wakes::default();
                        queue.wake_first(&mut woken);
                        prop_assert_eq!(!woken.is_empty(), is_woken);
                    }
                    Event::Tick(count) => {
                        queue.wake_next(count.into(), &mut Wakes::default());
                        tick(&mut plain, count);
                    }
                    Event::Comes | Event::InFront | Event::Again(_) => {}
                }
                let first = plain.iter().find(|(_, (state, _))| *state != State::Asleep).map(|(id, _)| *id);
                prop_assert_eq!(queue.first_awake(), first);
                prop_assert!(plain.keys().all(|id| queue.has_precedence(*id) == first.is_none_or(|first| *id <= first)));
                prop_assert!(queue.ids().eq(plain.keys().copied()));
                prop_assert_eq!((queue.len(), queue.is_empty()), (plain.len(), plain.is_empty()));
                prop_assert_eq!(queue.fences_wanted() as usize, plain.keys().filter(|id| **id % 2 == 0).count());
                let places = queue.places.as_ref().map_or(0, |places| places.all.len());
                prop_assert!(places <= 2 * queue.len() + FEW);
            }
        }
    }

    #[test]
    fn a_crowd_that_is_gone_leaves_no_room_behind() {
        let mut queue = WaitQueue::default();
        for id in 0..100_000 {
            queue.add(id, waiter(false));
        }
        // The first task stays.
        assert!((1..100_000).all(|id| queue.remove(id).is_some()));
        let room = queue.places.unwrap().all.capacity();
        assert!(room <= 4 + 2 * FEW, "{room}");
    }

    /// The tasks woken after two tasks polled a future, one after the other.
    fn woken(bug: Option<Mutant>) -> Vec<u64> {
        let _seeded = Seeded::begin(bug);
        let woken = Arc::default();
        let task = |number| waker(Arc::new(Task(number, Arc::clone(&woken))));
        let mut queue = WaitQueue::default();
        queue.add(1, waiter(false));
        for number in [1, 2, 2] {
            drop(queue.register(1, task(number)));
        }
        let (mut first, mut again) = (Wakes::default(), Wakes::default());
        queue.wake_first(&mut first);
        first.wake();
        queue.wake_first(&mut again);
        assert!(again.is_empty(), "it was woken");
        let woken = woken.lock();
        woken.clone()
    }

    #[test]
    fn the_task_that_polled_the_future_last_is_woken() {
        assert_eq!(woken(None), [2]);
        assert_eq!(woken(Some(Mutant::WakerNotTaken)), [0; 0]);
    }
}
