//! [`Replicas`]: how many of them must have a grant before it counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout_at;

use super::failure::CallError;
use super::link::{Called, Link, Live};
use super::millis;
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::store::{Retry, StoreError};

/// Nobody listens there. A message to it is a write, which replicas are sent: a server that did not write for a connection
/// since it was made answers its `WAIT` at once, though the grant that it repeats may have reached nobody.
const MARK: &str = "cache_lock:";

/// The replicas that have to confirm.
#[derive(Debug)]
pub(crate) struct Replicas {
    count: u32,
    within: Duration,
    /// How many have asked so far.
    asked: AtomicU64,
    last: Mutex<Last>,
}

/// The last confirmation, which those share who asked before it was sent: a `WAIT` keeps all else on its connection
/// waiting, so there is never more than one.
#[derive(Debug)]
struct Last {
    generation: u64,
    /// It speaks for so many.
    covers: u64,
    outcome: Result<(), StoreError>,
}

impl Replicas {
    pub(crate) fn new(count: u32, within: Duration) -> Self {
        let last = Mutex::new(Last { generation: 0, covers: 0, outcome: Ok(()) });
        Self { count, within, asked: AtomicU64::new(0), last }
    }

    /// Waits until enough replicas have all that was answered on this connection before the call.
    async fn confirm(&self, link: &Link, live: &Live, by: Deadline) -> Result<(), StoreError> {
        let by = by.counted_from(Moment::now());
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        let confirming = async {
            let mut last = self.last.lock().await;
            if last.generation != live.made.generation || last.covers <= number {
                let covers = self.asked.load(Ordering::SeqCst);
                let outcome = self.ask(link, live, by.counted_from(Moment::now())).await;
                *last = Last { generation: live.made.generation, covers, outcome };
            }
            last.outcome.clone()
        };
        let late = |_| Err(CallError::Silent(by.span()).into());
        timeout_at(by.on_timer(), confirming).await.unwrap_or_else(late)
    }

    async fn ask(&self, link: &Link, live: &Live, by: Deadline) -> Result<(), StoreError> {
        let mut marked = redis::pipe();
        marked.cmd("PUBLISH").arg(MARK).arg("").cmd("WAIT").arg(self.count).arg(millis(self.within));
        let confirmed = match link.call_on(live, &marked, by).await?.as_slice() {
            [_, redis::Value::Int(confirmed)] => u32::try_from(*confirmed).unwrap_or_default(),
            _ => return Err(StoreError::no_answer()),
        };
        if confirmed >= self.count {
            return Ok(());
        }
        let text = format!("{confirmed} of {} replicas confirmed within {:?}", self.count, self.within);
        let replicas = Some((confirmed, self.count));
        Err(StoreError { retry: Retry::Never, out_of_time: false, replicas, problem: BackendError::new(text) })
    }
}

impl Called {
    /// Has the replicas confirm what was answered, if they have to.
    pub(super) async fn confirmed(&self, by: Deadline) -> Result<(), StoreError> {
        match &self.link.replicas {
            Some(replicas) => Box::pin(replicas.confirm(&self.link, &self.live, by)).await,
            None => Ok(()),
        }
    }

    /// Has the replicas confirm the answers that count as soon as they do; those fail otherwise.
    pub(super) async fn confirm_all<T>(
        &self,
        answers: &mut [Result<T, StoreError>],
        counts: impl Fn(&T) -> bool,
        by: Deadline,
    ) {
        let counts = |answer: &Result<T, StoreError>| answer.as_ref().is_ok_and(&counts);
        if self.link.replicas.is_some()
            && answers.iter().any(counts)
            && let Err(error) = self.confirmed(by).await
        {
            for answer in answers.iter_mut().filter(|answer| counts(answer)) {
                *answer = Err(error.clone());
            }
        }
    }
}
