//! Threads of one process in every order of their locked steps. The simulated worlds can't do this: they run on one thread, and never stop
//! a task between two of its steps.
//!
//! Each thread of a play is an OS thread, and one of them runs at a time. A thread may be preempted before each lock of a
//! [`Mutex`](crate::mutex::Mutex) of this crate. A play is repeated in every order with at most a few preemptions (Musuvathi and Qadeer,
//! "Iterative Context Bounding", PLDI 2007: nearly all races need no more than two). No time passes in a play, so a wait whose wake-up is
//! missing never ends, and is found.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::cell::RefCell;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use super::time::Simulated;
use crate::mutants::{Mutant, Seeded};

mod tries;

/// What a thread of a play does.
pub(super) type Script = Box<dyn FnOnce() + Send>;

thread_local! {
    /// The play of this thread, and the thread's number in it.
    static PART: RefCell<Option<(Arc<Play>, usize)>> = const { RefCell::new(None) };
}

fn part() -> Option<(Arc<Play>, usize)> {
    PART.with_borrow(Clone::clone)
}

/// Another thread of the play may run before this one locks. With `is_blocked` another one has to.
pub(crate) fn before_lock(is_blocked: bool) {
    if let Some((play, me)) = part() {
        play.leave(me, if is_blocked { Thread::Blocked } else { Thread::Ready });
    }
}

/// Whether this thread belongs to a play.
pub(crate) fn is_played() -> bool {
    PART.with_borrow(Option::is_some)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    Ready,
    /// It waits for a mutex that another thread holds.
    Blocked,
    /// Its future waits to be woken.
    Waiting,
    /// It runs when no other thread can.
    Last,
    Done,
}

/// One play, in one order.
pub(super) struct Play {
    stage: Mutex<Stage>,
    moved: Condvar,
}

#[derive(Default)]
struct Stage {
    threads: Vec<Thread>,
    /// The threads that were woken while they were not waiting.
    woken: Vec<bool>,
    running: usize,
    /// What to choose at each choice. After the last one, the running thread continues.
    plan: Vec<usize>,
    choices: Vec<Choice>,
    /// Whether the play is over although threads still wait.
    is_stuck: bool,
}

/// Which of several threads runs next.
struct Choice {
    chosen: usize,
    of: usize,
    /// Whether each choice but the first preempts a thread that could go on.
    takes_off: bool,
}

impl Stage {
    /// Lets another thread run, or the same one again.
    fn go_on(&mut self, me: usize) {
        let is_ready = |number: &usize| self.threads[*number] == Thread::Ready;
        let mut ready: Vec<usize> = (0..self.threads.len()).filter(is_ready).collect();
        if ready.is_empty() {
            self.threads
                .iter_mut()
                .filter(|thread| **thread == Thread::Blocked)
                .for_each(|thread| *thread = Thread::Ready);
            ready = (0..self.threads.len()).filter(|number| self.threads[*number] == Thread::Ready).collect();
        }
        if ready.is_empty() {
            ready.extend(self.threads.iter().position(|thread| *thread == Thread::Last));
        }
        ready.sort_by_key(|number| *number != me);
        self.running = match ready.len() {
            0 => {
                self.is_stuck = self.threads.contains(&Thread::Waiting);
                usize::MAX
            }
            1 => ready[0],
            of => {
                let chosen = self.plan.get(self.choices.len()).copied().unwrap_or(0);
                self.choices.push(Choice { chosen, of, takes_off: ready[0] == me });
                ready[chosen]
            }
        };
        if let Some(thread) = self.threads.get_mut(self.running) {
            *thread = Thread::Ready;
        }
    }
}

impl Play {
    fn new(plan: Vec<usize>) -> Arc<Self> {
        let stage = Stage { plan, ..Stage::default() };
        Arc::new(Self { stage: Mutex::new(stage), moved: Condvar::new() })
    }

    /// The thread `me` stops as `thread`, and returns when it is its turn.
    fn leave(&self, me: usize, thread: Thread) {
        let mut stage = self.stage.lock().unwrap();
        if stage.is_stuck {
            return;
        }
        if thread != Thread::Blocked {
            // Threads that wait for a mutex may get it now.
            stage
                .threads
                .iter_mut()
                .filter(|other| **other == Thread::Blocked)
                .for_each(|other| *other = Thread::Ready);
        }
        let was_woken = thread == Thread::Waiting && std::mem::take(&mut stage.woken[me]);
        stage.threads[me] = if was_woken { Thread::Ready } else { thread };
        stage.go_on(me);
        self.moved.notify_all();
        drop(self.moved.wait_while(stage, |stage| stage.running != me && !stage.is_stuck).unwrap());
    }

    fn wake(&self, number: usize) {
        let mut stage = self.stage.lock().unwrap();
        match stage.threads[number] {
            Thread::Waiting => stage.threads[number] = Thread::Ready,
            _ => stage.woken[number] = true,
        }
    }

    fn end(&self, me: usize) {
        let mut stage = self.stage.lock().unwrap();
        stage.threads[me] = Thread::Done;
        if !stage.is_stuck {
            stage.go_on(me);
        }
        self.moved.notify_all();
    }

    /// Plays the scripts, each in a thread. Returns whether all of them finished.
    pub(super) fn run(self: &Arc<Self>, bug: Option<Mutant>, scripts: Vec<Script>) -> bool {
        {
            let mut stage = self.stage.lock().unwrap();
            stage.threads = vec![Thread::Ready; scripts.len()];
            stage.woken = vec![false; scripts.len()];
            stage.go_on(usize::MAX);
        }
        let runtime = tokio::runtime::Handle::current();
        std::thread::scope(|scope| {
            for (number, script) in scripts.into_iter().enumerate() {
                let (play, runtime) = (Arc::clone(self), runtime.clone());
                scope.spawn(move || {
                    let _runtime = runtime.enter();
                    let (_time, _seeded) = (Simulated::begin(), Seeded::begin(bug));
                    let stage = play.stage.lock().unwrap();
                    drop(play.moved.wait_while(stage, |stage| stage.running != number && !stage.is_stuck).unwrap());
                    PART.set(Some((Arc::clone(&play), number)));
                    let _end = End(Arc::clone(&play), number);
                    script();
                });
            }
        });
        !self.stage.lock().unwrap().is_stuck
    }

    /// The plan of the next order. `None` after the last one.
    fn next_plan(&self, most_taken_off: usize) -> Option<Vec<usize>> {
        let stage = self.stage.lock().unwrap();
        let takes_off = |choice: &Choice, chosen: usize| usize::from(choice.takes_off && chosen > 0);
        let may_be_next = |place: usize| {
            let choice = &stage.choices[place];
            let before: usize = stage.choices[..place].iter().map(|before| takes_off(before, before.chosen)).sum();
            let next = choice.chosen + 1;
            (next < choice.of && before + takes_off(choice, next) <= most_taken_off).then_some((place, next))
        };
        let (place, next) = (0..stage.choices.len()).rev().find_map(may_be_next)?;
        let mut plan: Vec<usize> = stage.choices[..place].iter().map(|choice| choice.chosen).collect();
        plan.push(next);
        Some(plan)
    }
}

/// Marks the end of a thread, also by a panic.
struct End(Arc<Play>, usize);

impl Drop for End {
    fn drop(&mut self) {
        PART.set(None);
        self.0.end(self.1);
    }
}

struct Woken(Arc<Play>, usize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.wake(self.1);
    }
}

/// Drives a future on a thread of a play. `None` when the future was never woken, and no thread is left to wake it.
pub(super) fn drive<T>(future: impl Future<Output = T>) -> Option<T> {
    let (play, me) = part().unwrap();
    let waker = Waker::from(Arc::new(Woken(Arc::clone(&play), me)));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(value);
        }
        play.leave(me, Thread::Waiting);
        if play.stage.lock().unwrap().is_stuck {
            return None;
        }
    }
}

/// Waits on a thread of a play until no other thread can go on.
pub(super) fn wait_for_all() {
    let (play, me) = part().unwrap();
    play.leave(me, Thread::Last);
}

/// Calls `play` in each order with at most this many preemptions, until it returns something. Returns that, and the number of orders.
pub(super) fn in_each_order<T>(most_taken_off: usize, play: impl Fn(&Arc<Play>) -> Option<T>) -> (Option<T>, u32) {
    let (mut plan, mut played) = (Vec::new(), 0);
    loop {
        let next = Play::new(plan);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let shown = {
            let _runtime = runtime.enter();
            let _time = Simulated::begin();
            play(&next)
        };
        played += 1;
        if shown.is_some() {
            return (shown, played);
        }
        match next.next_plan(most_taken_off) {
            Some(following) => plan = following,
            None => return (None, played),
        }
    }
}
