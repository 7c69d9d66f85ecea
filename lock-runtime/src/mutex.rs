//! [`Mutex`]: the standard library's, without poison.

use std::sync::{MutexGuard, PoisonError};

/// After a panic under its lock the mutex goes on. So its value has to be in order wherever code under the lock can panic.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
