//! [`Member`]: what a quorum knows of one of its servers.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Deadline;
use crate::mutex::Mutex;
use crate::observe;
use crate::store::voter::Voter;
use crate::store::{Answers, StoreError};

/// A server of the quorum.
#[derive(Debug)]
pub(super) struct Member<S> {
    pub(super) node: S,
    /// The server's place in the order that all managers share.
    pub(super) number: usize,
    /// The failure of a server that has not answered since.
    failed: Mutex<Option<StoreError>>,
}

/// A verb with less time than this, or than two round trips, says nothing about the server when it fails for lack of time.
const CUT_SHORT: Duration = Duration::from_millis(50);

impl<S: Voter> Member<S> {
    pub(super) fn new(number: usize, node: S) -> Arc<Self> {
        Arc::new(Self { node, number, failed: Mutex::default() })
    }

    /// Notes the outcome of a verb with this deadline.
    pub(super) fn note<T>(&self, deadline: Deadline, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        let error = outcome.as_ref().err().cloned();
        if error.as_ref().is_some_and(|error| error.out_of_time)
            && deadline.span() < CUT_SHORT.max(self.node.round_trip() * 2)
        {
            return outcome;
        }
        let is_news = std::mem::replace(&mut *self.failed.lock(), error.clone()).is_none();
        // The other servers may be enough, and then no caller learns of this failure.
        if let Some(error) = error.filter(|_| is_news) {
            observe::member_failed(self.node.name(), &error.problem);
        }
        outcome
    }

    /// The same for a verb with one item.
    pub(super) fn note_one<T>(&self, deadline: Deadline, outcome: Result<T, StoreError>) -> Answers<T> {
        self.note(deadline, outcome).map(|answer| vec![Ok(answer)])
    }

    /// The failure of a server that does not answer.
    pub(super) fn failure(&self) -> Option<StoreError> {
        self.failed.lock().clone()
    }
}
