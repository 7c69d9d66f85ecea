//! [`Mutex`]: the standard library's mutex, without poisoning.

use std::sync::{MutexGuard, PoisonError};

/// It stays usable after a panic under its lock. So its value must be consistent wherever code under the lock can panic.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Locks it, waiting until it is free.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(any(test, feature = "simulation"))]
        if let Some(guard) = crate::simulation::lock(&self.0) {
            return guard;
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
