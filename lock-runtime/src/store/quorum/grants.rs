//! [`Grants`]: the locks that a majority granted, until their releases are sent.
//!
//! A hold starts when a majority has granted it, and it may be over before the last server has the ask. The keeper sends the release
//! over another connection, where it may overtake the ask. So a server that answers late is told of the release again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;

use super::Pending;
use super::member::Member;
use crate::clock::{Deadline, Moment};
use crate::mutex::Mutex;
use crate::store::voter::Voter;
use crate::store::{Answer, Answers, Release};
use crate::token::Token;

/// A server that has just answered answers again within this time, or what it granted ends with its claim.
const ANSWERS_AGAIN_WITHIN: Duration = Duration::from_millis(500);

/// The callers' quorum and the keeper's have them in common.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grants(Arc<Mutex<HashMap<Token, Granted>>>);

#[derive(Debug)]
struct Granted {
    at: Moment,
    /// Whether some servers have still to answer the ask.
    is_lagging: bool,
    is_released: bool,
}

impl Grants {
    /// Takes in that the locks of these releases were granted, and lets the `rest` of the asks end.
    pub(super) fn on_grant<S: Voter>(
        &self,
        members: &Arc<[Arc<Member<S>>]>,
        mut rest: Pending<Answers<Answer>>,
        granted: Vec<Release>,
    ) {
        let (at, is_lagging) = (Moment::now(), !rest.is_empty());
        let entry = |release: &Release| (release.token.clone(), Granted { at, is_lagging, is_released: false });
        self.0.lock().extend(granted.iter().map(entry));
        if is_lagging {
            let (members, lagging) = (Arc::clone(members), Lagging { grants: self.clone(), granted });
            tokio::spawn(async move {
                while let Some((number, _)) = rest.next().await {
                    let released = lagging.released();
                    if let Some(member) = members.get(number).filter(|_| !released.is_empty()) {
                        let _ = member.node.release(&released, Deadline::after(ANSWERS_AGAIN_WITHIN)).await;
                    }
                }
            });
        }
    }

    /// Notes a release that is about to be sent.
    pub(super) fn on_release(&self, token: &Token) {
        let mut grants = self.0.lock();
        if let Some(granted) = grants.get_mut(token).filter(|granted| granted.is_lagging) {
            mutant!(LaggingForgotten => return);
            granted.is_released = true;
        } else {
            grants.remove(token);
        }
    }

    /// Whether the token was granted at least so long ago, and is not released.
    pub(super) fn has_been_owned_for(&self, token: &Token, span: Duration) -> bool {
        self.0.lock().get(token).is_some_and(|granted| granted.at.elapsed() >= span)
    }
}

/// Locks that were granted while some servers have still to answer. Dropped when these have answered, and when the runtime ends.
struct Lagging {
    grants: Grants,
    granted: Vec<Release>,
}

impl Lagging {
    /// Those that were released meanwhile.
    fn released(&self) -> Vec<Release> {
        let grants = self.grants.0.lock();
        let is_released = |release: &&Release| grants.get(&release.token).is_some_and(|granted| granted.is_released);
        self.granted.iter().filter(is_released).cloned().collect()
    }
}

impl Drop for Lagging {
    fn drop(&mut self) {
        let mut grants = self.grants.0.lock();
        for release in &self.granted {
            if let Some(granted) = grants.get_mut(&release.token) {
                granted.is_lagging = false;
                if granted.is_released {
                    grants.remove(&release.token);
                }
            }
        }
    }
}
