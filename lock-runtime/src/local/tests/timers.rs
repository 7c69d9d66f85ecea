//! Tests: whatever the order in which two threads reach a lease's timer, the last decision counts.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::round;
use crate::LockManager;
use crate::clock::{Deadline, Moment};
use crate::local::slot::Slot;
use crate::local::slot::{ScheduleKeys, TimerKey};
use crate::lock::{Action, Trigger};
use crate::mutants::{Mutant, Seeded};
use crate::protocol::Renewed;

/// A timer that is set after its decision, in two steps: in the schedule, then in the slot. Another thread may do anything between the
/// steps.
struct Later {
    slot: Arc<Slot>,
    at: Instant,
    due: Option<TimerKey>,
}

thread_local! {
    static POSTPONED: RefCell<Vec<Later>> = const { RefCell::new(Vec::new()) };
}

/// What [`Mutant::TimerSetLater`] does instead of setting the timer.
pub(in crate::local) fn postpone(slot: &Arc<Slot>, at: Instant) {
    POSTPONED.with_borrow_mut(|postponed| postponed.push(Later { slot: Arc::clone(slot), at, due: None }));
}

/// A thread that decides on a timer. Without the bug it has one step only.
struct Thread<'a> {
    bug: Option<Mutant>,
    decide: Option<Box<dyn FnOnce() + 'a>>,
    later: Vec<Later>,
}

impl<'a> Thread<'a> {
    const STEPS: usize = 3;

    fn new(bug: Option<Mutant>, decide: impl FnOnce() + 'a) -> Self {
        Self { bug, decide: Some(Box::new(decide)), later: Vec::new() }
    }

    fn step(&mut self) {
        if let Some(decide) = self.decide.take() {
            let _seeded = Seeded::begin(self.bug);
            decide();
            self.later = POSTPONED.take();
        } else if self.later.iter().any(|later| later.due.is_none()) {
            for Later { slot, at, due } in &mut self.later {
                slot.core.schedule().set_timer(slot, *at, due);
            }
        } else {
            for Later { slot, due, .. } in self.later.drain(..) {
                let mut state = slot.state.lock();
                let due = std::mem::replace(&mut state.entries.due, due);
                slot.core.schedule().cancel(ScheduleKeys { due, tracked: None });
            }
        }
    }
}

/// Whether a lingering lease is released in time. Its hold ends while the keeper has the answer to a renewal. `order` has a 1 for each
/// step of the keeper, and a 0 for each step of the task.
async fn lingers_in_time(order: u32, bug: Option<Mutant>) -> bool {
    const LINGER: Duration = Duration::from_millis(100);
    let locks = LockManager::in_memory();
    let guard = locks.lock("p", "k").linger(LINGER).acquire().await.unwrap();
    sleep(Duration::from_millis(20)).await;
    let slot = locks.core().table().get("p:k").unwrap();
    let mut actions = Vec::new();
    slot.look(Trigger::Verify, &round(), &mut actions);
    let [Action::Renew(renewal)] = &actions[..] else { panic!("it is verified") };
    let confirmed = Renewed::Until(Deadline::after(renewal.lease));
    let mut keeper = Thread::new(bug, || assert!(slot.on_renewal(renewal, Moment::now(), Some(confirmed)).is_none()));
    let mut task = Thread::new(bug, || drop(guard));
    for step in 0..2 * Thread::STEPS {
        if order >> step & 1 == 1 { keeper.step() } else { task.step() }
    }
    sleep(LINGER + Duration::from_millis(5)).await;
    !slot.has_lease()
}

#[tokio::test(start_paused = true)]
async fn in_each_order_of_the_keeper_and_a_task_a_lease_lingers_for_its_time() {
    let (mut orders, mut late) = (0, 0);
    for order in (0..1_u32 << (2 * Thread::STEPS)).filter(|order| order.count_ones() == 3) {
        orders += 1;
        late += u32::from(!lingers_in_time(order, None).await);
    }
    assert_eq!((orders, late), (20, 0));
}

/// Whether the next hold lasts. The lease before it lingers briefly, and the thread that ended its hold is stopped before this step.
async fn next_hold_lasts(before: usize, bug: Option<Mutant>) -> bool {
    let locks = LockManager::in_memory();
    let request = || locks.lock("p", "k").expire(Duration::from_secs(1));
    let guard = request().linger(Duration::from_millis(30)).acquire().await.unwrap();
    sleep(Duration::from_millis(29)).await;
    let mut task = Thread::new(bug, || drop(guard));
    let mut next = None;
    for step in 0..Thread::STEPS {
        if step == before {
            sleep(Duration::from_millis(50)).await;
        }
        task.step();
        next.get_or_insert_with(|| tokio::spawn(request().acquire()));
    }
    let next = next.unwrap().await.unwrap().unwrap();
    sleep(Duration::from_secs(3)).await;
    next.is_valid()
}

#[tokio::test(start_paused = true)]
async fn the_next_hold_is_renewed_wherever_the_thread_that_ends_a_hold_stalls() {
    for (bug, is_caught) in [(None, false), (Some(Mutant::TimerSetLater), true)] {
        let mut lost = 0;
        for before in 0..=Thread::STEPS {
            lost += u32::from(!next_hold_lasts(before, bug).await);
        }
        assert_eq!(lost > 0, is_caught, "{bug:?}: {lost} holds");
    }
}

/// If such a change were only noted, the keeper would keep entries for a lease that is gone.
#[tokio::test(start_paused = true)]
#[should_panic(expected = "such a change is a step")]
async fn a_change_with_consequences_must_be_a_step() {
    let locks = LockManager::in_memory();
    let _guard = locks.lock("p", "k").acquire().await.unwrap();
    locks.core().table().get("p:k").unwrap().note(crate::lock::Lock::track);
}
