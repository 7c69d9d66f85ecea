//! [`Mutex`]: the standard library's, without poison.

use std::sync::{MutexGuard, PoisonError};

/// A mutex of which a panic takes nothing away. What it guards has to be whole wherever code under its lock can panic.
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
