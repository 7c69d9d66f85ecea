//! [`Opaque`]: an `Arc` that is `Send` and `Sync` at a glance.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// An `Arc` that the compiler knows to be `Send` and `Sync` without looking into its value.
///
/// The types of this crate refer to each other in circles, and the public handles reach them all. For each generic fn of a user, the
/// compiler proves again that a handle in it is `Send`. That took 0.4 s per fn. Here the proof ends at the `dyn … + Send + Sync`. Reading
/// the value costs a virtual call.
pub(crate) struct Opaque<T: 'static>(Arc<dyn Borrow<T> + Send + Sync>);

impl<T: Send + Sync> Opaque<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Clone for Opaque<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Opaque<T> {
    type Target = T;

    fn deref(&self) -> &T {
        Borrow::<T>::borrow(&*self.0)
    }
}

impl<T: fmt::Debug> fmt::Debug for Opaque<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
