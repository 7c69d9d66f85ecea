//! [`Mutex`]: the standard library's, without poison.

use std::sync::{MutexGuard, PoisonError};

/// After a panic under its lock the mutex goes on. So its value has to be in order wherever code under the lock can panic.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex that nobody has locked.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Locks it, and waits until it is free.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(any(test, feature = "simulation"))]
        if let Some(guard) = crate::simulation::lock(&self.0) {
            return guard;
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
