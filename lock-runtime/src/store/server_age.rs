//! [`Age`]: how long a server process has certainly been running.

use std::time::Duration;

use tokio::time::Instant;

use crate::mutex::Mutex;

/// A server reports its age in whole seconds.
const ROUNDING: Duration = Duration::from_secs(1);
/// After its start a server's wall clock is not stepped by more than this. A wrong time zone causes a smaller step, and so
/// does a clock that ran wrong while the machine was off.
const LARGEST_STEP: Duration = Duration::from_secs(24 * 3600);

/// Since when a manager has known a server process, by a clock of the manager that nobody can set. It is kept when the
/// manager connects again.
#[derive(Debug, Default)]
pub(crate) struct Sighting(Mutex<Option<(String, Instant)>>);

impl Sighting {
    /// When the process `run_id` was first seen. For a new process this is now.
    pub(crate) fn first(&self, run_id: &str) -> Instant {
        let mut seen = self.0.lock();
        match &*seen {
            Some((known, first)) if known == run_id => *first,
            _ => {
                let now = Instant::now();
                *seen = Some((run_id.to_owned(), now));
                now
            }
        }
    }
}

/// The age of a server process: how long this manager has seen it, and what the server says.
///
/// A server counts its age by its wall clock, which is often set right just after a start. Then the server reports a greater
/// age than it has. So the largest such step is taken off the reported age. The report is needed all the same: without it a
/// server would never get a vote when no manager lives as long as the longest lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Age {
    seen: Instant,
    told: Duration,
    told_at: Instant,
}

impl Age {
    /// `told` is the age that the server reports now.
    pub(crate) fn new(seen: Instant, told: Duration) -> Self {
        Self { seen, told, told_at: Instant::now() }
    }

    /// The time until every lease has ended that the process may have forgotten at its start. No lease is longer than
    /// `longest`.
    pub(crate) fn left(&self, longest: Duration) -> Duration {
        let needed = longest.saturating_add(ROUNDING);
        let by_sight = needed.saturating_sub(self.seen.elapsed());
        let told = self.told.saturating_add(self.told_at.elapsed());
        by_sight.min(needed.saturating_add(LARGEST_STEP).saturating_sub(told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const LONGEST: Duration = Duration::from_mins(1);
    const NEEDED: Duration = Duration::from_secs(61);

    #[tokio::test(start_paused = true)]
    async fn a_server_is_as_old_as_it_was_seen_whatever_its_clock_was_set_to() {
        let sighting = Sighting::default();
        for told in [Duration::ZERO, NEEDED, Duration::from_hours(1), LARGEST_STEP] {
            let age = Age::new(sighting.first(&format!("{told:?}")), told);
            assert_eq!(age.left(LONGEST), NEEDED, "{told:?}");
            advance(Duration::from_mins(1)).await;
            assert_eq!(age.left(LONGEST), Duration::from_secs(1), "{told:?}");
            advance(Duration::from_secs(1)).await;
            assert!(age.left(LONGEST).is_zero(), "{told:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconnect_does_not_begin_anew_and_a_restart_does() {
        let sighting = Sighting::default();
        let first = sighting.first("one");
        advance(Duration::from_mins(1)).await;
        assert_eq!(sighting.first("one"), first);
        assert_eq!(Age::new(sighting.first("one"), Duration::ZERO).left(LONGEST), Duration::from_secs(1));
        assert_eq!(Age::new(sighting.first("other"), Duration::ZERO).left(LONGEST), NEEDED);
    }

    #[tokio::test(start_paused = true)]
    async fn an_age_that_no_step_explains_is_believed() {
        let age = Age::new(Instant::now(), LARGEST_STEP + Duration::from_secs(59));
        assert_eq!(age.left(LONGEST), Duration::from_secs(2));
        advance(Duration::from_secs(2)).await;
        assert!(age.left(LONGEST).is_zero());
    }
}
