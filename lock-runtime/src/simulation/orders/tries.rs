//! Tasks of one process in every order: while a task holds the lock, every single try gets its answer (promise 7: it tries once). After a
//! shutdown no task waits, whatever the others do. After a loss, the next holder holds the lock alone, and its manager knows of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;

use super::{Play, Script, drive, in_each_order, wait_for_all};
use crate::error::LossReason;
use crate::local::HoldHandle;
use crate::mutants::Mutant;
use crate::{LockError, LockGuard, LockManager, LockRequest};

const LONG: Duration = Duration::from_mins(1);

/// A task: gets the lock or not, holds it until no other thread can go on, and ends.
#[derive(Clone, Copy, Debug)]
struct Task {
    mode: Mode,
    /// Whether it tries once. Otherwise it waits.
    tries: bool,
    /// Whether it belongs to another process.
    beside: bool,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Awaits its guard's release.
    Releases,
    /// Drops its guard.
    Drops,
    /// Does not even wait: it is polled once.
    GivesUp,
    /// Does not acquire the lock, but shuts the manager down.
    ShutsDown,
    /// Does not acquire the lock, but makes the manager lose all holds.
    Loses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Alone,
    Fenced,
    Lingers,
    AtLeast,
    Read,
    Permit(u32),
}

impl Mode {
    const fn tries(self) -> Task {
        Task { mode: self, tries: true, beside: false, end: End::Releases }
    }

    const fn waits(self) -> Task {
        Task { tries: false, ..self.tries() }
    }

    /// How many holds of this mode may exist at once.
    fn capacity(self) -> u32 {
        match self {
            Self::Read => u32::MAX,
            Self::Permit(of) => of,
            _ => 1,
        }
    }
}

impl Task {
    const fn beside(self) -> Self {
        Self { beside: true, ..self }
    }

    const fn drops(self) -> Self {
        Self { end: End::Drops, ..self }
    }

    const fn gives_up(self) -> Self {
        Self { end: End::GivesUp, ..self }
    }

    const fn shuts_down(self) -> Self {
        Self { end: End::ShutsDown, ..self }
    }

    const fn loses(self) -> Self {
        Self { end: End::Loses, ..self }
    }

    fn request(self, locks: &LockManager) -> LockRequest {
        let request = locks.lock("k", &0).timeout(if self.tries { Duration::ZERO } else { LONG });
        match self.mode {
            Mode::Alone => request,
            Mode::Fenced => request.fenced(true),
            Mode::Lingers => request.linger(Duration::from_secs(1)),
            Mode::AtLeast => request.at_least(Duration::from_secs(1)),
            Mode::Read => request.read(),
            Mode::Permit(of) => request.permits(of),
        }
    }
}

/// What is known about all tasks.
#[derive(Default)]
struct Board {
    /// The tasks that have no answer yet.
    unanswered: Vec<usize>,
    holds: Vec<(usize, Task, HoldHandle)>,
    wrong: Option<String>,
}

impl Board {
    fn held(&self) -> Vec<Task> {
        self.holds.iter().map(|(_, task, _)| *task).collect()
    }

    /// Called when no thread can go on until a holder releases the lock. By then every task that is due must have its answer.
    fn look(&mut self, tasks: &[Task]) {
        let is_shut_down =
            |task: &Task| tasks.iter().any(|other| other.end == End::ShutsDown && other.beside == task.beside);
        let is_due = |task: &Task| task.tries || is_shut_down(task);
        if let Some(number) = self.unanswered.iter().find(|number| is_due(&tasks[**number])) {
            let held = self.held();
            self.wrong.get_or_insert(format!("{number} is not answered while it is held: {held:?}"));
        }
    }
}

/// Whether too many hold the lock at once; the last of them is the newest.
fn is_too_much(held: &[Task]) -> bool {
    let is_alone = |task: &Task| !matches!(task.mode, Mode::Read | Mode::Permit(_));
    let Some((task, others)) = held.split_last() else { return false };
    !others.is_empty() && (held.iter().any(is_alone) || u32::try_from(others.len()).unwrap() >= task.mode.capacity())
}

/// Plays these tasks, each on its own thread. Returns what was wrong.
fn play(play: &Arc<Play>, tasks: &[Task], bug: Option<Mutant>) -> Option<String> {
    let locks = LockManager::in_memory();
    let beside = LockManager::builder().in_memory_with(&locks).unwrap();
    let board = Arc::new(Mutex::new(Board { unanswered: (0..tasks.len()).collect(), ..Board::default() }));
    let script = |(number, task): (usize, &Task)| -> Script {
        let (task, tasks, board) = (*task, tasks.to_vec(), Arc::clone(&board));
        let locks = if task.beside { beside.clone() } else { locks.clone() };
        Box::new(move || {
            if matches!(task.end, End::ShutsDown | End::Loses) {
                if task.end == End::ShutsDown {
                    locks.core().close();
                } else {
                    for slot in locks.core().table().all() {
                        locks.core().revoke(&slot, None, LossReason::NotKnown);
                    }
                }
                board.lock().unwrap().unanswered.retain(|other| *other != number);
                return;
            }
            let acquiring = task.request(&locks).acquire();
            let outcome = if task.end == End::GivesUp { acquiring.now_or_never() } else { drive(acquiring) };
            if outcome.is_some() || task.end == End::GivesUp {
                board.lock().unwrap().unanswered.retain(|other| *other != number);
            }
            let Some(outcome) = outcome else { return };
            match outcome {
                Ok(guard) => hold(&locks, guard, number, task, &tasks, &board),
                Err(error) if task.tries && error.is_timeout() => {}
                Err(LockError::ShutDown { .. }) => {}
                Err(error) => drop(board.lock().unwrap().wrong.get_or_insert(format!("{number}: {error}"))),
            }
        })
    };
    let is_over = play.run(bug, tasks.iter().enumerate().map(script).collect());
    let mut board = board.lock().unwrap();
    // A waiter for a resting lock waits for time to pass.
    let rests = tasks.iter().any(|task| task.mode == Mode::AtLeast);
    let may_wait = rests && board.unanswered.iter().all(|number| !tasks[*number].tries);
    if !(is_over || may_wait) {
        let unanswered = board.unanswered.clone();
        board.wrong.get_or_insert(format!("{unanswered:?} wait for ever"));
    }
    board.wrong.take()
}

fn hold(locks: &LockManager, guard: LockGuard, number: usize, task: Task, tasks: &[Task], board: &Mutex<Board>) {
    let mut holds = {
        let mut board = board.lock().unwrap();
        board.holds.push((number, task, guard.first.handle().clone()));
        board.holds.clone()
    };
    // Another thread may run at each of these checks. So the last one looks at this hold: it was valid at the others, too.
    let is_unknown = if tasks.iter().any(|task| task.end == End::Loses) {
        let keys = locks.stats().keys;
        holds.retain(|(_, _, hold)| hold.is_valid());
        keys == 0
    } else {
        false
    };
    let held: Vec<_> = holds.iter().map(|(_, task, _)| *task).collect();
    let is_here = holds.iter().any(|(other, ..)| *other == number);
    if is_here && (is_unknown || is_too_much(&held)) {
        board.lock().unwrap().wrong.get_or_insert(format!("held at once: {held:?}, unknown: {is_unknown}"));
    }
    drop(holds);
    wait_for_all();
    {
        let mut board = board.lock().unwrap();
        board.look(tasks);
        board.holds.retain(|(other, ..)| *other != number);
    }
    if task.end == End::Releases {
        let _ = drive(guard.release());
    } else {
        drop(guard);
    }
}

use Mode::{Alone, AtLeast, Fenced, Lingers, Permit, Read};

const PLAYS: [&[Task]; 32] = [
    &[Alone.tries(), Alone.tries()],
    &[Alone.tries(), Alone.tries(), Alone.tries()],
    &[Fenced.tries(), Alone.tries()],
    &[Lingers.tries(), Lingers.tries()],
    &[AtLeast.tries(), Alone.tries()],
    &[Alone.waits(), Alone.waits().drops(), Alone.tries()],
    &[Lingers.waits(), Lingers.waits().drops(), Lingers.tries()],
    &[Alone.waits(), Alone.waits().gives_up(), Alone.waits()],
    &[Read.waits(), Alone.waits(), Read.waits().gives_up()],
    &[Permit(1).waits(), Permit(1).waits().gives_up(), Permit(1).waits()],
    &[Alone.waits(), Alone.waits().beside(), Alone.tries()],
    &[Alone.waits().beside(), Alone.tries(), Alone.tries()],
    &[Alone.waits().beside(), Alone.waits().gives_up(), Alone.tries()],
    &[Alone.waits().gives_up(), Alone.tries()],
    &[Read.tries(), Read.tries()],
    &[Read.waits(), Alone.waits().beside(), Read.tries()],
    &[Read.tries(), Alone.tries()],
    &[Permit(1).tries(), Permit(1).tries()],
    &[Permit(2).tries(), Permit(2).tries(), Permit(2).tries()],
    &[Permit(1).waits().drops(), Permit(1).waits(), Permit(1).tries()],
    &[Alone.waits().beside(), Alone.waits(), Alone.waits().shuts_down()],
    &[Alone.waits().beside(), Alone.tries(), Alone.waits().shuts_down()],
    &[Permit(1).waits().beside(), Permit(1).waits(), Alone.waits().shuts_down()],
    &[Permit(1).waits(), Permit(1).waits(), Alone.waits().shuts_down()],
    // One of them asks for a permit while the other has one, and is woken for that one.
    &[Permit(2).waits().beside(), Permit(2).waits(), Permit(2).waits()],
    &[Permit(2).waits().beside(), Permit(2).waits().drops(), Permit(2).waits()],
    &[Permit(2).waits().beside(), Permit(2).waits(), Permit(2).waits().gives_up()],
    // The hold for which one of them is woken is lost before it is polled.
    &[Read.waits(), Read.waits(), Read.waits().loses()],
    &[Read.waits(), Read.waits().gives_up(), Read.waits().loses()],
    &[Alone.waits(), Alone.waits(), Alone.waits().loses()],
    &[Permit(1).waits(), Permit(1).waits(), Alone.waits().loses()],
    &[Lingers.waits(), Alone.waits(), Alone.waits().loses()],
];

#[test]
fn every_task_that_has_its_answer_is_woken() {
    for tasks in PLAYS {
        // Two tasks have few orders.
        let (wrong, orders) = in_each_order(if tasks.len() == 2 { 2 } else { 1 }, |stage| play(stage, tasks, None));
        assert!(wrong.is_none(), "{tasks:?}, order {orders}: {wrong:?}");
        assert!(orders > 10, "{tasks:?}: {orders}");
    }
}

/// Each bug shows in one of the plays.
#[test]
fn a_wake_up_that_is_missing_is_found() {
    for bug in [Mutant::FreeLeaseUntold, Mutant::DeadTaskStays] {
        let shown = PLAYS.iter().find_map(|tasks| in_each_order(1, |stage| play(stage, tasks, Some(bug))).0);
        assert!(shown.is_some(), "{bug:?}");
    }
}
