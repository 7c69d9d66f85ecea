//! [`Lookout`]: the servers of a round, and a record of unplanned failovers.
//!
//! On a busy machine a master may be taken for dead, and then lose as much as one that was stopped.

use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use super::arena::Arena;
use super::strike::{Kind, Strike};
use history::claims::HARNESS;
use history::event::now;
use history::{Recorder, What};

/// The name of such a failover in a history.
pub const UNPLANNED: &str = "UnplannedFailOver";

/// Servers, and which were the masters at the last look.
#[derive(Debug)]
pub struct Lookout {
    arena: Box<dyn Arena>,
    recorder: Recorder,
    last: Option<(Vec<usize>, u64)>,
}

impl Lookout {
    /// Over these servers.
    #[must_use]
    pub fn over(arena: Box<dyn Arena>, recorder: Recorder) -> Self {
        Self { arena, recorder, last: None }
    }

    /// The servers.
    #[must_use]
    pub fn arena(&self) -> &dyn Arena {
        &*self.arena
    }

    /// Records it if the masters have changed. Returns whether the servers agree on the masters now.
    pub fn look(&mut self) -> bool {
        let looked = now();
        let Some(masters) = self.arena.masters() else { return false };
        if let Some((before, from)) = self.last.replace((masters, looked))
            && self.last.as_ref().is_some_and(|(masters, _)| *masters != before)
        {
            let (kind, target) = (UNPLANNED.to_owned(), "servers".to_owned());
            self.recorder.note_of(now(), HARNESS, What::Fault { kind, target, from });
        }
        true
    }

    /// [`Arena::suffer`]: changes of masters during it are planned, but not while slots move.
    pub fn suffer(&mut self, strike: &Strike) -> (String, u64) {
        while !self.look() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let suffered = self.arena.suffer(strike);
        if strike.kind != Kind::MoveSlots {
            self.last = None;
        }
        self.look();
        suffered
    }
}

/// Keeps looking while no fault is being played, until `is_over`. It holds only a `Weak`, so that a round that panics stops the
/// servers.
pub fn keep_watch(lookout: &Weak<Mutex<Lookout>>, is_over: impl Fn() -> bool) {
    while !is_over() {
        let Some(lookout) = lookout.upgrade() else { return };
        match lookout.try_lock() {
            Ok(mut lookout) => {
                lookout.look();
            }
            Err(std::sync::TryLockError::Poisoned(_)) => return,
            Err(std::sync::TryLockError::WouldBlock) => {}
        }
        drop(lookout);
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Locks the mutex even if it is poisoned.
pub fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
