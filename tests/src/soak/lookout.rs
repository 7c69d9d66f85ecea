//! [`Lookout`]: the servers of a round, and the failovers that nobody asked for.
//!
//! A master on a busy machine may be taken for dead, and lose what one that is stopped loses.

use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use super::arena::Arena;
use super::strike::Strike;
use history::claims::HARNESS;
use history::event::now;
use history::{Recorder, What};

/// What such a failover is called in a history.
pub const UNPLANNED: &str = "UnplannedFailOver";

/// Servers, and who the masters were when they were last looked at.
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

    /// Notes whether other servers are masters than before; returns whether that is known just now.
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

    /// As [`Arena::suffer`]: what happens to the masters meanwhile was planned.
    pub fn suffer(&mut self, strike: &Strike) -> (String, u64) {
        while !self.look() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let suffered = self.arena.suffer(strike);
        self.last = None;
        self.look();
        suffered
    }
}

/// Looks again and again while nothing happens to the servers, until `is_over`. It does not keep the servers: a round that panics
/// ends them.
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

/// The servers, whatever became of whoever had them before.
pub fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
