//! The clocks of a simulated host: tokio's paused one, and the time for which the host was suspended. And its random numbers.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use fastrand::Rng;
use lock_wire::simulation::{World, play};
use tokio::time::Instant;

/// A history starts here, so that nothing is at zero.
const START: Duration = Duration::from_secs(1);

/// After this many readings of a clock that stands still, a task would read it for ever.
const MOST_LOOKS: u32 = 1_000_000;

thread_local! {
    static HOST: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
    /// When the clock was last read, and how often in that instant.
    static LOOKS: Cell<Option<(Instant, u32)>> = const { Cell::new(None) };
    /// The random numbers of a simulated host.
    static CHANCES: RefCell<Option<Rng>> = const { RefCell::new(None) };
    /// Kept here, because nobody may await the task that saw the clock stand still.
    static STANDS_STILL: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, this thread is a simulated host.
pub(super) struct Simulated(());

impl Simulated {
    pub(super) fn begin() -> Self {
        let (is_played, before_lock) = (super::orders::is_played, super::orders::before_lock);
        play(World { now, is_played, before_lock });
        HOST.set(Some((Instant::now(), Duration::ZERO)));
        CHANCES.set(Some(Rng::with_seed(0)));
        STANDS_STILL.set(false);
        Self(())
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        HOST.set(None);
        CHANCES.set(None);
    }
}

/// Whether this thread is a simulated host. State that all managers of a process share must not affect it.
pub(crate) fn is_simulated() -> bool {
    HOST.get().is_some()
}

/// The boot-time and wall clocks of a simulated host in nanoseconds; `None` on a real one.
pub(super) fn now() -> Option<u64> {
    let (start, suspended) = HOST.get()?;
    let (now, looks) = (Instant::now(), LOOKS.get());
    let looks = looks.filter(|(at, _)| *at == now).map_or(0, |(_, looks)| looks + 1);
    if looks >= MOST_LOOKS {
        STANDS_STILL.set(true);
        LOOKS.set(None);
        panic!("the clock stands still");
    }
    LOOKS.set(Some((now, looks)));
    Some(super::world::nanos(START + now.duration_since(start) + suspended))
}

/// A random number, the same in each run of a world; `None` on a real host.
pub(crate) fn chance() -> Option<u64> {
    CHANCES.with_borrow_mut(|chances| chances.as_mut().map(|random| random.u64(..)))
}

/// Whether a task read the clock so often that time could not go on.
pub(super) fn stood_still() -> bool {
    STANDS_STILL.get()
}

/// The host sleeps: only its timers stand still.
pub(super) fn suspend(span: Duration) {
    HOST.set(HOST.get().map(|(start, suspended)| (start, suspended + span)));
}
