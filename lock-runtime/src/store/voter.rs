//! [`Voter`]: what a quorum needs of one of its servers.

use std::time::Duration;

use super::{Store, StoreError};
use crate::BackendError;
use crate::clock::Deadline;
use crate::token::Token;

/// This key has the run id of the server process that is in service. No lock can have this name.
pub(crate) const MARKER: &str = "cache_lock:quorum";

/// What a quorum needs of a server besides the verbs.
pub(crate) trait Voter: Store + Send + Sync + 'static {
    /// The name as people write it.
    fn name(&self) -> &str;

    /// The id of the server process, as far as it is known.
    fn identity(&self) -> Option<String>;

    /// Connects if there is no connection, and finds out whether the server may vote.
    fn probe(&self, deadline: Deadline) -> impl Future<Output = Result<Eligibility, StoreError>> + Send;

    /// Marks the server as being in service from now on. The mark of another process stays, unless this process is eligible.
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
    /// The server has been running for longer than any lease lasts, and can be marked.
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
