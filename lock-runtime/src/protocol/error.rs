//! [`StoreError`]: the failure of a verb, and what it allows to conclude.

use super::Reach;
use crate::{BackendError, LockError};

/// The failure of a verb.
#[derive(Clone, Debug)]
pub(crate) struct StoreError {
    pub(crate) retry: Retry,
    pub(crate) reach: Reach,
    /// There was only too little time: the deadline came before an answer.
    pub(crate) out_of_time: bool,
    /// Nothing was sent: what this process has sent before is too much for now. The store tells when there is room (`Store::room`).
    pub(crate) no_room: bool,
    /// How many replicas confirmed the verb, and how many must.
    pub(crate) replicas: Option<(u32, u32)>,
    pub(crate) problem: BackendError,
}

impl StoreError {
    pub(crate) fn later(problem: BackendError) -> Self {
        Self {
            retry: Retry::Later,
            reach: Reach::Unanswered,
            out_of_time: false,
            no_room: false,
            replicas: None,
            problem,
        }
    }

    pub(crate) fn never(problem: BackendError) -> Self {
        Self { retry: Retry::Never, ..Self::later(problem) }
    }

    /// The error for a caller that wanted the lock `key`.
    pub(crate) fn of_lock(self, key: &str) -> LockError {
        let key = key.to_owned();
        match self.replicas {
            Some((confirmed, wanted)) => LockError::TooFewReplicas { key, confirmed, wanted },
            None => LockError::Backend { key, problem: self.problem },
        }
    }

    /// The error for a reply that is none of the scripts'.
    pub(crate) fn no_answer() -> Self {
        Self::later(BackendError::new("the server's reply is not one of the lock's scripts"))
    }
}

/// Whether a failed verb may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Repeat it after a pause: the server is unreachable, loading, or out of memory. The verb may or may not have taken
    /// effect.
    Later,
    /// It will fail again, because of a missing right or a key of another type, for example. No caller waits for a repetition. The
    /// keeper repeats it all the same: somebody may correct the reason while there is time.
    Never,
}
