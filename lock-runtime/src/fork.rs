//! [`Origin`]: the process that something was made in. A child after a fork has a copy of it, and must not use it.

use std::cell::Cell;
use std::time::Duration;

use crate::clock::Moment;

/// A thread asks for its process at most this often where a system call each time would be too much.
const LATELY: Duration = Duration::from_millis(1);

thread_local! {
    static KNOWN: Cell<Option<(Moment, u32)>> = const { Cell::new(None) };
}

/// The process that a manager, or its connection, was made in.
///
/// Its copy in a child has the same process id in its tokens and the same sequence, shares the sockets, and has no threads
/// that work for it: what the child did by it, the parent would do as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin(u32);

impl Origin {
    pub(crate) fn here() -> Self {
        Self(std::process::id())
    }

    /// Whether this is the copy of a parent's.
    pub(crate) fn is_inherited(self) -> bool {
        self != Self::here()
    }

    /// The same as far as this thread knew at most a millisecond before `now`: on most calls without a system call, which
    /// would cost more than a hand-over has room for.
    pub(crate) fn is_inherited_at(self, now: Moment) -> bool {
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
