//! Tasks of one process in every order: while a task holds the lock, no single try is left without its answer (promise 7: it tries
//! once), and after a shutdown no task waits, whatever the siblings do.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;

use super::{Play, Script, drive, in_each_order, wait_for_all};
use crate::mutants::Mutant;
use crate::{LockError, LockGuard, LockManager, LockRequest};

const LONG: Duration = Duration::from_mins(1);

/// A task: it gets the lock, or not, holds it until nobody else can go on, and ends.
#[derive(Clone, Copy, Debug)]
struct Task {
    mode: Mode,
    /// Whether it tries once. Otherwise it waits.
    tries: bool,
    /// Whether it is of another process.
    beside: bool,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It awaits the release of its guard.
    Releases,
    /// It drops its guard.
    Drops,
    /// It does not even wait: it is polled once.
    GivesUp,
    /// It is no task that wants the lock: it shuts the manager down.
    ShutsDown,
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

    /// How many holds of this mode there may be at once.
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

/// What is known of all tasks.
#[derive(Default)]
struct Board {
    /// The tasks that have not heard whether they get the lock.
    unanswered: Vec<usize>,
    holds: Vec<(usize, Task)>,
    wrong: Option<String>,
}

impl Board {
    fn begin(&mut self, number: usize, task: Task) {
        self.holds.push((number, task));
        let is_alone = |mode: Mode| !matches!(mode, Mode::Read | Mode::Permit(_));
        let others = self.holds.len() - 1;
        let is_beside = others > 0 && self.holds.iter().any(|(_, task)| is_alone(task.mode));
        if is_beside || u32::try_from(others).unwrap() >= task.mode.capacity() {
            self.wrong.get_or_insert(format!("held at once: {:?}", self.holds));
        }
    }

    /// Nobody can go on before one of those who hold the lock releases it.
    fn look(&mut self, tasks: &[Task]) {
        let is_shut_down =
            |task: &Task| tasks.iter().any(|other| other.end == End::ShutsDown && other.beside == task.beside);
        let is_due = |task: &Task| task.tries || is_shut_down(task);
        if let Some(number) = self.unanswered.iter().find(|number| is_due(&tasks[**number])) {
            self.wrong.get_or_insert(format!("{number} is not answered while it is held: {:?}", self.holds));
        }
    }
}

/// Plays these tasks, each on a thread of its own. Returns what was wrong.
fn play(play: &Arc<Play>, tasks: &[Task], bug: Option<Mutant>) -> Option<String> {
    let locks = LockManager::in_memory();
    let beside = LockManager::builder().in_memory_with(&locks).unwrap();
    let board = Arc::new(Mutex::new(Board { unanswered: (0..tasks.len()).collect(), ..Board::default() }));
    let script = |(number, task): (usize, &Task)| -> Script {
        let (task, tasks, board) = (*task, tasks.to_vec(), Arc::clone(&board));
        let locks = if task.beside { beside.clone() } else { locks.clone() };
        Box::new(move || {
            if task.end == End::ShutsDown {
                locks.core().close();
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
                Ok(guard) => hold(guard, number, task, &tasks, &board),
                Err(error) if task.tries && error.is_timeout() => {}
                Err(LockError::ShutDown { .. }) => {}
                Err(error) => drop(board.lock().unwrap().wrong.get_or_insert(format!("{number}: {error}"))),
            }
        })
    };
    let is_over = play.run(bug, tasks.iter().enumerate().map(script).collect());
    let mut board = board.lock().unwrap();
    // Whoever waits for a lock that rests waits for time to pass.
    let rests = tasks.iter().any(|task| task.mode == Mode::AtLeast);
    let may_wait = rests && board.unanswered.iter().all(|number| !tasks[*number].tries);
    if !(is_over || may_wait) {
        let unanswered = board.unanswered.clone();
        board.wrong.get_or_insert(format!("{unanswered:?} wait for ever"));
    }
    board.wrong.take()
}

fn hold(guard: LockGuard, number: usize, task: Task, tasks: &[Task], board: &Mutex<Board>) {
    board.lock().unwrap().begin(number, task);
    wait_for_all();
    {
        let mut board = board.lock().unwrap();
        board.look(tasks);
        board.holds.retain(|(other, _)| *other != number);
    }
    if task.end == End::Releases {
        let _ = drive(guard.release());
    } else {
        drop(guard);
    }
}

use Mode::{Alone, AtLeast, Fenced, Lingers, Permit, Read};

const PLAYS: [&[Task]; 27] = [
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
    // One of them asks for a permit while the other has one, and is called to that.
    &[Permit(2).waits().beside(), Permit(2).waits(), Permit(2).waits()],
    &[Permit(2).waits().beside(), Permit(2).waits().drops(), Permit(2).waits()],
    &[Permit(2).waits().beside(), Permit(2).waits(), Permit(2).waits().gives_up()],
];

#[test]
fn no_task_sleeps_that_has_its_answer() {
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
    for bug in
        [Mutant::LooksBeforeRegistering, Mutant::DeadTurnNotPassed, Mutant::TakenUntold, Mutant::EmptiedQueueAwaited]
    {
        let shown = PLAYS.iter().find_map(|tasks| in_each_order(1, |stage| play(stage, tasks, Some(bug))).0);
        assert!(shown.is_some(), "{bug:?}");
    }
}
