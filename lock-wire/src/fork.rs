//! [`Origin`]: the process in which a manager or a connection was made. A forked child has a copy of it, which it must not use.

use std::cell::Cell;
use std::time::Duration;

use crate::clock::Moment;

/// In hot places, where a system call for each check would cost too much, a thread asks for its process id at most this often.
const LATELY: Duration = Duration::from_millis(1);

thread_local! {
    static KNOWN: Cell<Option<(Moment, u32)>> = const { Cell::new(None) };
}

/// The process in which a manager, or its connection, was made.
///
/// A forked child's copy makes the same tokens as the parent and shares its sockets, and no thread in the child works for the copy. So the
/// parent and the child would act as the same client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(u32);

impl Origin {
    /// This process.
    #[inline]
    pub fn here() -> Self {
        Self(std::process::id())
    }

    /// Whether this process is a forked child, which only has a copy of what its parent made.
    #[inline]
    pub fn is_inherited(self) -> bool {
        self != Self::here()
    }

    /// Like [`is_inherited`](Self::is_inherited), but from a value that this thread read at most a millisecond before `now`. So most calls
    /// make no system call; a hand-over has no time for one.
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
