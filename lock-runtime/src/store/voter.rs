//! [`Voter`]: what a quorum needs from one of its servers, and [`Age`]: how long a server process has certainly been running.

use std::time::Duration;

use tokio::time::Instant;

use super::{Store, StoreError};
use crate::BackendError;
use crate::clock::Deadline;
use crate::mutex::Mutex;
use crate::token::Token;

/// This key has the run id of the server process that is in service. No lock can have this name.
pub(crate) const MARKER: &str = "cache_lock:quorum";

/// What a quorum needs from a server besides the verbs.
pub(crate) trait Voter: Store + Send + Sync + 'static {
    /// The server's address, for messages.
    fn name(&self) -> &str;

    /// The id of the server process, as far as it is known.
    fn identity(&self) -> Option<String>;

    /// Connects if there is no connection, and finds out whether the server may vote.
    fn probe(&self, deadline: Deadline) -> impl Future<Output = Result<Eligibility, StoreError>> + Send;

    /// Marks the server as in service. The mark of another server process stays, unless this one is eligible.
    fn mark_in_service(&self, deadline: Deadline) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// From now on the server draws only fencing tokens greater than `fence`; `false` when the token does not own the lock.
    fn raise(
        &self,
        key: &str,
        token: &Token,
        fence: u64,
        deadline: Deadline,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// Whether a server may vote: docs/protocol.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eligibility {
    /// The server is marked, and has not restarted since.
    InService,
    /// The server has been running longer than any lease lasts, and can be marked.
    Eligible { is_marked: bool },
    /// The server is new, or has lost its data in a restart. It is eligible after this time.
    Unmarked(Duration),
    /// The server restarted, and is eligible after this time.
    Restarted(Duration),
}

impl Eligibility {
    /// Whether the server's grants count, or why not.
    pub(crate) fn vote(self) -> Result<(), StoreError> {
        let text = match self {
            Self::InService => return Ok(()),
            Self::Eligible { .. } => "it is just being marked as in service".to_owned(),
            Self::Unmarked(left) | Self::Restarted(left) => {
                let left = Duration::from_secs(left.as_secs() + 1);
                format!("it may have lost its data in a restart, and has no vote for another {left:?}")
            }
        };
        Err(StoreError::later(BackendError::new(text)))
    }
}

/// A server reports its age in whole seconds.
const ROUNDING: Duration = Duration::from_secs(1);
/// After its start a server's wall clock is stepped by at most this much. A wrong time zone causes a smaller step, and so does a clock that
/// ran wrong while the machine was off.
const LARGEST_STEP: Duration = Duration::from_secs(24 * 3600);

/// Since when a manager has known a server process, by a clock of the manager that can't be set. It survives reconnects.
#[derive(Debug, Default)]
pub(crate) struct Sighting(Mutex<Option<(String, Instant)>>);

impl Sighting {
    /// When the process `run_id` was first seen: now, for a new process.
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

/// The age of a server process: how long this manager has seen it, and what the server reports.
///
/// A server computes its age from its wall clock, which is often set right after a start. Then the server reports a greater age than it
/// has, so the largest such step is subtracted. The report is needed anyway: without it a server would never get a vote if no manager lives
/// as long as the longest lease.
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

    /// The time until every lease that the process may have forgotten at its start has ended. No lease is longer than `longest`.
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
    async fn a_restart_starts_the_age_again_and_a_reconnect_does_not() {
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
