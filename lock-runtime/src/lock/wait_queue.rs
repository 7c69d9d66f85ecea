//! [`WaitQueue`]: the tasks that wait, in order, and which of them has been woken.
//!
//! A wake is a hint. A woken task may be polled late, or never: its thread works, or its future is kept behind another one. So a task
//! keeps its place until it leaves. A woken task that is not polled within a tick of the keeper is *asleep*: others take precedence
//! over it until it is polled. When it is polled at last, it has twice as many ticks from then on: a process whose tasks are all polled
//! late serves each of them in the end.
//!
//! To join at the end, to wake the next and to ask who has precedence cost the same however many wait. Who leaves from the middle
//! leaves a hole; the holes are closed when there are more of them than tasks.
//!
//! Wakers are cloned before they come into the queue, and leave it to be woken or dropped without any lock: a waker may be the last
//! reference to its task, whose futures come back to the lock when they are dropped.

use std::collections::VecDeque;
use std::task::Waker;

use super::request::ResolvedRequest;

/// A queue of no more places is not made smaller.
const FEW: usize = 64;
/// The most ticks for which a task that was asleep before keeps its precedence when it is woken.
const MOST_TICKS: u8 = 128;
/// The same for a request that replaces the holder: 50 ms. Others may have waited for less.
const NEWEST_TICKS: u8 = 10;

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
    /// All tasks with smaller ids are asleep.
    awake_from: u64,
}

/// A task that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// Before the first poll, and while the task is woken, this wakes nobody.
    waker: Waker,
    fenced: bool,
    /// Whether it waits inside of a body of its manager.
    pub(crate) is_inside: bool,
    state: State,
    /// For how many ticks it keeps its precedence when it is woken.
    ticks: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    /// It was woken, and not polled since. It keeps its precedence for so many more ticks.
    Woken(u8),
    /// It was woken too long ago, and not polled since.
    Asleep,
}

impl Waiter {
    pub(crate) fn new(request: &ResolvedRequest) -> Self {
        let &ResolvedRequest { fenced, is_inside, .. } = request;
        let ticks = if request.replaces() { NEWEST_TICKS } else { 1 };
        Self { waker: Waker::noop().clone(), fenced, is_inside, state: State::Waits, ticks }
    }

    /// A task that is not polled: nothing is known of it but its place.
    pub(super) fn asleep() -> Self {
        Self { waker: Waker::noop().clone(), fenced: false, is_inside: false, state: State::Asleep, ticks: 1 }
    }

    pub(crate) fn into_waker(self) -> Waker {
        self.waker
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

    /// The last task that waits.
    pub(super) fn last(&self) -> Option<u64> {
        self.places.as_ref()?.all.back().map(|(id, _)| *id)
    }

    #[cfg(test)]
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

    /// Whether nobody who is awake waits in front of the task `id`.
    pub(super) fn has_precedence(&self, id: u64) -> bool {
        mutant!(NewcomersOvertake => return true);
        self.first_awake().is_none_or(|first| id <= first)
    }

    /// The first task that is not asleep.
    pub(super) fn first_awake(&self) -> Option<u64> {
        let places = self.places.as_ref()?;
        let from = places.find(places.awake_from).unwrap_or_else(|at| at);
        let is_awake = |(_, waiter): &&(u64, Option<Waiter>)| waiter.as_ref().is_some_and(Waiter::is_awake);
        places.all.range(from..).find(is_awake).map(|(id, _)| *id)
    }

    /// Adds a task, or has it wait again.
    pub(crate) fn add(&mut self, id: u64, waiter: Waiter) {
        self.places.get_or_insert_default().add(id, waiter);
    }

    /// Whether the task waits.
    pub(super) fn has(&self, id: u64) -> bool {
        self.places.as_ref().is_some_and(|places| places.waiter(id).is_some())
    }

    /// The task is polled: it is awake.
    pub(super) fn on_poll(&mut self, id: u64) {
        let Some(places) = self.places.as_mut() else { return };
        let Some(waiter) = places.waiter_mut(id) else { return };
        if std::mem::replace(&mut waiter.state, State::Waits) == State::Asleep {
            waiter.ticks = waiter.ticks.saturating_mul(2).min(MOST_TICKS);
            places.awake_from = places.awake_from.min(id);
        }
    }

    /// The task is not polled: others take precedence over it.
    pub(super) fn note_asleep(&mut self, id: u64) {
        let places = self.places.get_or_insert_default();
        match places.waiter_mut(id) {
            Some(waiter) => waiter.state = State::Asleep,
            None => places.add(id, Waiter::asleep()),
        }
    }

    /// From now on `waker` wakes the task. Returns a waker to be dropped without any lock.
    pub(super) fn register(&mut self, id: u64, waker: Waker) -> Waker {
        let Some(waiter) = self.places.as_mut().and_then(|places| places.waiter_mut(id)) else { return waker };
        if is_known(&waiter.waker, &waker) { waker } else { std::mem::replace(&mut waiter.waker, waker) }
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Waiter> {
        let places = self.places.as_mut()?;
        let at = places.find(id).ok()?;
        let waiter = places.all.get_mut(at)?.1.take()?;
        places.on_taken(&waiter);
        Some(waiter)
    }

    /// Wakes the first task that is not asleep, unless it was woken and not polled since.
    pub(super) fn wake_first(&mut self) -> Option<Waker> {
        let id = self.first_awake()?;
        self.wake(id)
    }

    /// Wakes a task, unless it was woken and not polled since.
    pub(super) fn wake(&mut self, id: u64) -> Option<Waker> {
        self.places.as_mut()?.waiter_mut(id)?.wake()
    }

    /// Wakes all tasks.
    pub(super) fn wake_all(&mut self, woken: &mut impl Extend<Waker>) {
        let all = self.places.iter_mut().flat_map(|places| &mut places.all);
        woken.extend(all.filter_map(|(_, waiter)| waiter.as_mut()?.wake()));
    }

    /// A tick has passed since the last wakes: whoever was woken and not polled is asleep. Wakes the next `count` tasks.
    pub(super) fn wake_next(&mut self, count: usize, woken: &mut impl Extend<Waker>) {
        let Some(places) = self.places.as_mut() else { return };
        let from = places.find(places.awake_from).unwrap_or_else(|at| at);
        let (mut left, mut is_front) = (count, true);
        for (id, waiter) in places.all.range_mut(from..) {
            let Some(waiter) = waiter else { continue };
            if let State::Woken(left) = &mut waiter.state {
                waiter.state = left.checked_sub(1).map_or(State::Asleep, State::Woken);
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
            woken.extend(waiter.wake());
        }
    }

    /// Takes some of the tasks out, to wake them.
    pub(crate) fn take_if(&mut self, condition: impl Fn(&Waiter) -> bool) -> Vec<Waker> {
        let all = self.places.iter().flat_map(|places| &places.all);
        let is_meant = |waiter: &Option<Waiter>| waiter.as_ref().is_some_and(&condition);
        let meant: Vec<_> = all.filter(|(_, waiter)| is_meant(waiter)).map(|(id, _)| *id).collect();
        meant.into_iter().filter_map(|id| self.remove(id)).map(|waiter| waiter.waker).collect()
    }
}

impl Waiter {
    fn is_awake(&self) -> bool {
        self.state != State::Asleep
    }

    fn wake(&mut self) -> Option<Waker> {
        if self.state != State::Waits {
            return None;
        }
        self.state = State::Woken(self.ticks);
        Some(std::mem::replace(&mut self.waker, Waker::noop().clone()))
    }
}

impl Places {
    fn add(&mut self, id: u64, waiter: Waiter) {
        if let Some(known) = self.waiter_mut(id) {
            // It waits already.
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

    /// Where the place of this id is, or would be. Most who are looked for are in front.
    fn find(&self, id: u64) -> Result<usize, usize> {
        match self.all.front() {
            Some((first, _)) if id > *first => self.all.binary_search_by_key(&id, |(id, _)| *id),
            Some((first, _)) if id == *first => Ok(0),
            _ => Err(0),
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
        Waiter { waker: Waker::noop().clone(), fenced, is_inside: false, state: State::Waits, ticks: 1 }
    }

    /// What happens to a queue: a task comes, at the end, in front or again at a place that was left, one leaves, one is polled, the
    /// first is woken, a tick passes.
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

    /// The plain tick: who was woken and not polled is asleep, and the next ones are woken.
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
        /// The plain queue is a sorted map. Many come to each that goes, so that there are holes.
        #[test]
        fn it_is_a_queue_by_id_whatever_happens(events in prop::collection::vec(event(), 0..600)) {
            let (mut queue, mut plain, mut left) = (WaitQueue::around(1000), BTreeMap::new(), Vec::new());
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
                        prop_assert_eq!(queue.wake_first().is_some(), is_woken);
                    }
                    Event::Tick(count) => {
                        queue.wake_next(count.into(), &mut Vec::new());
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
        let mut queue = WaitQueue::around(0);
        for id in 0..100_000 {
            queue.add(id, waiter(false));
        }
        // The first one stays.
        assert!((1..100_000).all(|id| queue.remove(id).is_some()));
        let room = queue.places.unwrap().all.capacity();
        assert!(room <= 4 + 2 * FEW, "{room}");
    }

    /// The tasks that are woken when a future is woken that was polled by two tasks, one after another.
    fn woken(bug: Option<Mutant>) -> Vec<u64> {
        let _seeded = Seeded::begin(bug);
        let woken = Arc::default();
        let task = |number| waker(Arc::new(Task(number, Arc::clone(&woken))));
        let mut queue = WaitQueue::around(0);
        queue.add(1, waiter(false));
        for number in [1, 2, 2] {
            drop(queue.register(1, task(number)));
        }
        queue.wake_first().into_iter().for_each(Waker::wake);
        assert!(queue.wake_first().is_none(), "it was woken");
        let woken = woken.lock();
        woken.clone()
    }

    #[test]
    fn the_task_that_polled_the_future_last_is_woken() {
        assert_eq!(woken(None), [2]);
        assert_eq!(woken(Some(Mutant::WakerNotTaken)), [0; 0]);
    }
}
