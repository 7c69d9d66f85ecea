//! [`Node`]: one server of a quorum, and [`Member`], what the quorum knows of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::observe;
use crate::store::{Answers, Store, StoreError};
use crate::token::Token;

/// Holds the run id of the server process that is in service. No lock can have this name.
pub(crate) const MARKER: &str = "cache_lock:quorum";

/// What a quorum needs of a server beside the verbs.
pub(crate) trait Node: Store + Send + Sync + 'static {
    /// As people write it.
    fn name(&self) -> &str;

    /// Which server process it is, as far as is known.
    fn identity(&self) -> Option<String>;

    /// Connects if need be, and finds out whether it may vote.
    fn look(&self, by: Deadline) -> impl Future<Output = Result<Standing, StoreError>> + Send;

    /// Marks it as being in service from now on; another's mark stays, unless it is of age.
    fn enrol(&self, by: Deadline) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Who owns these locks; a failure when it may not vote.
    fn owners(&self, keys: &[Arc<str>], by: Deadline) -> impl Future<Output = Answers<Option<Token>>> + Send;

    /// Has it draw no fencing token that is not greater than `fence`; `false` when it does not own the lock.
    fn raise(
        &self,
        key: &str,
        token: &Token,
        fence: u64,
        by: Deadline,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// Whether a server may vote: docs/protocol.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is marked, and has not restarted since.
    InService,
    /// It has been running for longer than any lease lasts, and can be marked.
    OfAge { is_marked: bool },
    /// It is new, or has lost its data in a restart so long ago that it is of age only after this time.
    Unmarked(Duration),
    /// It restarted, and is of age after this time.
    Restarted(Duration),
}

impl Standing {
    /// Whether its grants count, or why not.
    pub(crate) fn vote(self) -> Result<(), StoreError> {
        let text = match self {
            Self::InService => return Ok(()),
            Self::OfAge { .. } => "it is just being marked as in service".to_owned(),
            Self::Unmarked(left) | Self::Restarted(left) => {
                let left = Duration::from_secs(left.as_secs() + 1);
                format!("it may have lost its data in a restart, and has no vote for another {left:?}")
            }
        };
        Err(StoreError::later(BackendError::new(text)))
    }
}

/// A server of the quorum.
#[derive(Debug)]
pub(super) struct Member<S> {
    pub(super) node: S,
    /// Its place in the order that all managers have in common.
    pub(super) number: usize,
    failed: Mutex<Option<Failed>>,
}

/// How a server failed last, and has not answered since.
#[derive(Clone, Debug)]
struct Failed {
    at: Moment,
    error: Option<StoreError>,
}

/// What has to be answered sooner, or in less than two round trips, says nothing about the server.
const CUT_SHORT: Duration = Duration::from_millis(50);
/// One that was only slow is a first choice again after this time.
const SLOW: Duration = Duration::from_secs(1);

impl<S: Node> Member<S> {
    pub(super) fn new(number: usize, node: S) -> Arc<Self> {
        Arc::new(Self { node, number, failed: Mutex::default() })
    }

    fn locked(&self) -> MutexGuard<'_, Option<Failed>> {
        // Nothing that can panic runs under this lock.
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how a verb went that had to end `by` then.
    pub(super) fn note<T>(&self, by: Deadline, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        let error = outcome.as_ref().err().cloned();
        if error.as_ref().is_some_and(|error| error.out_of_time)
            && by.span() < CUT_SHORT.max(self.node.round_trip() * 2)
        {
            return outcome;
        }
        let mut failed = self.locked();
        let is_news = failed.as_ref().is_none_or(|failed| failed.error.is_none());
        if error.is_some() || failed.is_some() {
            *failed = error.clone().map(|error| Failed { at: Moment::now(), error: Some(error) });
        }
        drop(failed);
        // The others may be enough without it, and then no caller hears of it.
        if let Some(error) = error.filter(|_| is_news) {
            observe::member_failed(self.node.name(), &error);
        }
        outcome
    }

    /// Notes that it has not answered in the time that others take.
    pub(super) fn is_slow(&self) {
        self.locked().get_or_insert_with(|| Failed { at: Moment::now(), error: None });
    }

    /// Why it does not answer.
    pub(super) fn failure(&self) -> Option<StoreError> {
        self.locked().as_ref()?.error.clone()
    }

    /// Whether others should be asked first.
    pub(super) fn is_doubtful(&self) -> bool {
        self.locked().as_ref().is_some_and(|failed| failed.error.is_some() || failed.at.elapsed() < SLOW)
    }
}
