//! [`StoreError`]: a verb that failed, and what may be concluded from that.

use crate::{BackendError, LockError};

/// A verb that failed.
#[derive(Clone, Debug)]
pub(crate) struct StoreError {
    pub(crate) retry: Retry,
    pub(crate) reach: Reach,
    /// It failed only for lack of time: its deadline came before an answer.
    pub(crate) out_of_time: bool,
    /// Only so many replicas confirmed it, of so many that must.
    pub(crate) replicas: Option<(u32, u32)>,
    pub(crate) problem: BackendError,
}

impl StoreError {
    pub(crate) fn later(problem: BackendError) -> Self {
        Self { retry: Retry::Later, reach: Reach::Unanswered, out_of_time: false, replicas: None, problem }
    }

    pub(crate) fn never(problem: BackendError) -> Self {
        Self { retry: Retry::Never, reach: Reach::Unanswered, out_of_time: false, replicas: None, problem }
    }

    /// What a caller is told who wanted the lock `key`.
    pub(crate) fn of_lock(self, key: &str) -> LockError {
        let key = key.to_owned();
        match self.replicas {
            Some((confirmed, wanted)) => LockError::TooFewReplicas { key, confirmed, wanted },
            None => LockError::Backend { key, problem: self.problem },
        }
    }

    /// A reply that is not what the script returns.
    pub(crate) fn no_answer() -> Self {
        Self::later(BackendError::new("the server's reply is not one of the lock's scripts"))
    }
}

/// What may be done about a failed verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Again after a pause: unreachable, loading, out of memory. It may or may not have taken effect.
    Later,
    /// Never: the same will fail again, such as a missing right or a key of another type.
    Never,
}

/// How far a verb came that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Nothing was sent to any server, for certain: there is no effect, and there will be none.
    Unsent,
    /// Something may have been sent, and not every answer came: the effect is unknown.
    Unanswered,
    /// The server answered, and refused. A script may have done part of its work before.
    Refused,
}
