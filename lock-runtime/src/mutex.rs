//! [`Mutex`]: the standard library's, without poison.

use std::sync::{MutexGuard, PoisonError};

#[cfg(test)]
pub(crate) use crate::simulation::orders;

/// After a panic under its lock the mutex goes on. So its value has to be in order wherever code under the lock can panic.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(test)]
        if let Some(guard) = self.lock_in_a_play() {
            return guard;
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same in a play of several threads: any of them may be the next to lock.
    #[cfg(test)]
    fn lock_in_a_play(&self) -> Option<MutexGuard<'_, T>> {
        use std::sync::TryLockError;

        let mut is_blocked = false;
        while orders::is_played() {
            orders::before_lock(is_blocked);
            match self.0.try_lock() {
                Ok(guard) => return Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => is_blocked = true,
            }
        }
        None
    }
}
