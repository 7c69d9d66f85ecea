//! [`Origin`]: the process in which a manager or a connection was made. A child after a fork has a copy of it, and must
//! not use the copy.

use std::cell::Cell;
use std::time::Duration;

use crate::clock::Moment;

/// A thread asks the system for its process at most this often, in the places where a system call for each check would
/// cost too much.
const LATELY: Duration = Duration::from_millis(1);

thread_local! {
    static KNOWN: Cell<Option<(Moment, u32)>> = const { Cell::new(None) };
}

/// The process in which a manager, or its connection, was made.
///
/// The copy in a child makes the same tokens as the parent and shares its sockets. No thread in the child works for the
/// copy. So the parent and the child would act as one and the same client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(u32);

impl Origin {
    /// This process.
    #[inline]
    pub fn here() -> Self {
        Self(std::process::id())
    }

    /// Whether this process is a child, and so has a copy of what its parent made.
    #[inline]
    pub fn is_inherited(self) -> bool {
        self != Self::here()
    }

    /// The same, but from a value that this thread read at most a millisecond before `now`. Most calls then make no
    /// system call, which a hand-over has no time for.
    #[inline]
    pub fn is_inherited_at(self, now: Moment) -> bool {
        let lately = KNOWN.try_with(|known| match known.get() {
            Some((at, process)) if now.since(at) < LATELY => Self(process),
            _ => {
                let here = Self::here();
                known.set(Some((now, here.0)));
                here
            }
        });
        self != lately.unwrap_or_else(|_| Self::here())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_process_made_is_inherited() {
        let (own, other) = (Origin::here(), Origin(std::process::id() + 1));
        assert!(!own.is_inherited() && other.is_inherited());
        for _ in 0..2 {
            assert!(!own.is_inherited_at(Moment::now()) && other.is_inherited_at(Moment::now()));
        }
    }
}
