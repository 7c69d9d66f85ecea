//! [`Opaque`]: an `Arc` that is `Send` and `Sync` at a glance.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// An `Arc` whose value the compiler does not look into to find that it is `Send` and `Sync`.
///
/// The types of this crate refer to each other in circles, and the public handles reach them all. The compiler proves anew for
/// each generic fn of a user that a handle inside of it is `Send`. That took 0.4 s a fn. Here the proof ends at the
/// `dyn … + Send + Sync`. To read the value costs a virtual call.
pub(crate) struct Opaque<T: 'static>(Arc<dyn Value<T> + Send + Sync>);

trait Value<T> {
    fn value(&self) -> &T;
}

impl<T> Value<T> for T {
    fn value(&self) -> &T {
        self
    }
}

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
        Value::<T>::value(&*self.0)
    }
}

impl<T: fmt::Debug> fmt::Debug for Opaque<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
