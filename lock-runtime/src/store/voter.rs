//! [`Voter`]: what a quorum needs of one of its servers.

use std::sync::Arc;
use std::time::Duration;

use super::{Answers, Store, StoreError};
use crate::BackendError;
use crate::clock::Deadline;
use crate::token::Token;

/// Holds the run id of the server process that is in service. No lock can have this name.
pub(crate) const MARKER: &str = "cache_lock:quorum";

/// What a quorum needs of a server beside the verbs.
pub(crate) trait Voter: Store + Send + Sync + 'static {
    /// As people write it.
    fn name(&self) -> &str;

    /// Which server process it is, as far as is known.
    fn identity(&self) -> Option<String>;

    /// Connects if need be, and finds out whether it may vote.
    fn probe(&self, deadline: Deadline) -> impl Future<Output = Result<Eligibility, StoreError>> + Send;

    /// Marks it as being in service from now on; another's mark stays, unless it is of age.
    fn mark_in_service(&self, deadline: Deadline) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Who owns these locks; a failure when it may not vote.
    fn owners(&self, keys: &[Arc<str>], deadline: Deadline) -> impl Future<Output = Answers<Option<Token>>> + Send;

    /// Has it draw no fencing token that is not greater than `fence`; `false` when it does not own the lock.
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
    /// It is marked, and has not restarted since.
    InService,
    /// It has been running for longer than any lease lasts, and can be marked.
    Eligible { is_marked: bool },
    /// It is new, or has lost its data in a restart so long ago that it is of age only after this time.
    Unmarked(Duration),
    /// It restarted, and is of age after this time.
    Restarted(Duration),
}

impl Eligibility {
    /// Whether its grants count, or why not.
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
