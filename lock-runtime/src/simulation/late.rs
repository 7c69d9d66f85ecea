//! [`Late`]: tasks that are woken but not polled, as in a runtime whose threads are busy with other work.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use fastrand::Rng;
use history::event::What;
use tokio::time::{Instant, Sleep, sleep};

use super::network::Network;
use super::time;

/// A thread is free for at least this long between two pieces of work.
const FREE: Duration = Duration::from_secs(1);

/// How late tasks are polled after they were woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// Polled at once.
    Never,
    /// Now and then, by at most this many milliseconds: the thread is busy.
    Sometimes(u64),
    /// One time in four, by at most this many milliseconds, mostly by few.
    Often(u64),
    /// Each time, by at most this many milliseconds: the process has too much to do.
    Always(u64),
    /// Each time, by exactly this many milliseconds.
    Exactly(u64),
    /// Now and then, together with most tasks of their process: the thread is busy for at most this many milliseconds.
    Thread(u64),
}

impl Late {
    pub(super) fn of(random: &mut Rng) -> Self {
        match random.u8(..8) {
            0 | 1 => Self::Sometimes(5000),
            2 => Self::Always(200),
            _ => Self::Never,
        }
    }

    /// How late each wake-up may be, in milliseconds.
    pub(super) fn of_each(self) -> u64 {
        match self {
            Self::Always(most) => most,
            Self::Exactly(millis) => millis,
            Self::Never | Self::Sometimes(_) | Self::Often(_) | Self::Thread(_) => 0,
        }
    }

    fn draw(self, random: &mut Rng) -> Duration {
        let millis = match self {
            Self::Sometimes(most) if random.u8(..16) == 0 => random.u64(100..=most),
            Self::Often(most) if random.u8(..4) == 0 => {
                let most = most >> random.u8(..8);
                random.u64(20..=most)
            }
            Self::Always(most) => random.u64(0..=most),
            Self::Exactly(millis) => millis,
            Self::Never | Self::Sometimes(_) | Self::Often(_) | Self::Thread(_) => 0,
        };
        Duration::from_millis(millis)
    }
}

/// The task whose delays are recorded, and where.
pub(super) struct Diary {
    pub(super) network: Arc<Network>,
    pub(super) process: String,
    pub(super) task: u32,
}

/// The thread on which most tasks of a process run.
pub(super) struct Thread {
    /// Until when it is busy.
    busy: Mutex<Instant>,
    /// When the faults end.
    end: Instant,
}

impl Thread {
    pub(super) fn new(end: Instant) -> Arc<Self> {
        Arc::new(Self { busy: Mutex::new(Instant::now()), end })
    }

    /// How long it is still busy.
    fn left(&self) -> Duration {
        let busy = *self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.saturating_duration_since(Instant::now())
    }

    /// After a poll: a thread that was free for a while may become busy.
    fn work(&self, late: Late, random: &mut Rng) {
        let Late::Thread(most) = late else { return };
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if now > *busy + FREE && random.u8(..64) == 0 {
            *busy = (now + Duration::from_millis(random.u64(500..=most))).min(self.end);
        }
    }
}

/// Polls a future only some time after it was woken.
pub(super) struct PolledLate<F> {
    inner: Pin<Box<F>>,
    late: Late,
    thread: Arc<Thread>,
    random: Rng,
    diary: Diary,
    flag: Arc<Flag>,
    /// The end of the pause, and since when the future could have been polled.
    pause: Option<(Pin<Box<Sleep>>, u64)>,
}

impl<F> PolledLate<F> {
    pub(super) fn new(inner: F, late: Late, random: Rng, diary: Diary) -> Self {
        Self::on(&Thread::new(Instant::now()), inner, late, random, diary)
    }

    /// On a thread shared with others.
    pub(super) fn on(thread: &Arc<Thread>, inner: F, late: Late, random: Rng, diary: Diary) -> Self {
        let thread = Arc::clone(thread);
        let flag = Arc::new(Flag { is_woken: AtomicBool::new(false), outer: Mutex::new(None) });
        Self { inner: Box::pin(inner), late, thread, random, diary, flag, pause: None }
    }

    /// Records how late it has been so far.
    fn note(&mut self) {
        if let Some((_, from)) = self.pause.take() {
            self.diary.network.note(&self.diary.process, self.diary.task, What::Late { from });
        }
    }
}

impl<F> Drop for PolledLate<F> {
    fn drop(&mut self) {
        self.note();
    }
}

impl<F: Future> Future for PolledLate<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        *this.flag.outer.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        loop {
            if let Some((pause, _)) = &mut this.pause {
                std::task::ready!(pause.as_mut().poll(context));
                this.note();
            } else if this.flag.is_woken.load(Ordering::Relaxed) {
                let pause = this.late.draw(&mut this.random).max(this.thread.left());
                if !pause.is_zero() {
                    this.pause = Some((Box::pin(sleep(pause)), time::now().unwrap_or_default()));
                    continue;
                }
            }
            this.flag.is_woken.store(false, Ordering::Relaxed);
            let waker = Waker::from(Arc::clone(&this.flag));
            let polled = this.inner.as_mut().poll(&mut Context::from_waker(&waker));
            this.thread.work(this.late, &mut this.random);
            return polled;
        }
    }
}

/// Whether the inner future was woken since it was last polled.
struct Flag {
    is_woken: AtomicBool,
    outer: Mutex<Option<Waker>>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Relaxed);
        if let Some(outer) = &*self.outer.lock().unwrap_or_else(PoisonError::into_inner) {
            outer.wake_by_ref();
        }
    }
}
