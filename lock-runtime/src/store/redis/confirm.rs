//! How replicas confirm what their master answered.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{Either, select};
use lock_wire::{Called, Link, Live};
use tokio::time::{sleep, timeout_at};

use super::replicas::{Last, Replicas};
use super::{RedisStore, millis};
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::store::StoreError;

/// Nobody subscribes to this channel. A message to it counts as a write that the replicas get. Without a write on its
/// connection the server may answer `WAIT` at once, although the grant that it repeats has reached no replica.
const WAIT_PROBE_CHANNEL: &str = "cache_lock:";
/// An idle server checks only this often whether the time of a `WAIT` is up.
const SERVER_TICK: Duration = Duration::from_millis(100);

impl Replicas {
    /// Waits until enough replicas have everything that was answered on this connection before the call.
    async fn confirm(&self, link: &Link, live: &Live, deadline: Deadline) -> Result<(), StoreError> {
        let deadline = deadline.counted_from(Moment::now());
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        let confirming = async {
            let mut last = self.last.lock().await;
            if last.generation != live.generation() || last.covers <= number {
                let covers = self.asked.load(Ordering::SeqCst);
                let deadline = deadline.counted_from(Moment::now());
                let outcome = self.ask(link, live, deadline).await;
                if outcome.is_err() && self.within_of(deadline) < self.within {
                    // A caller with more time may have more success.
                    return outcome;
                }
                *last = Last { generation: live.generation(), covers, outcome };
            }
            last.outcome.clone()
        };
        let late = |_| Err(self.unconfirmed(deadline.span()).into());
        timeout_at(deadline.on_timer(), confirming).await.unwrap_or_else(late)
    }

    async fn ask(&self, link: &Link, live: &Live, deadline: Deadline) -> Result<(), StoreError> {
        let within = self.within_of(deadline);
        let mut marked = redis::pipe();
        marked.cmd("PUBLISH").arg(WAIT_PROBE_CHANNEL).arg("").cmd("WAIT").arg(self.count).arg(millis(within));
        self.wait_until(Some(Deadline::new(deadline.start(), within + SERVER_TICK)));
        let answer = pin!(link.call_on(live, &marked, deadline));
        let replies = match select(answer, pin!(sleep(within + Duration::from_millis(1)))).await {
            Either::Left((replies, _)) => replies,
            Either::Right(((), answer)) => {
                // Any command makes the server check at once.
                link.send_unread(&redis::cmd("PING"), || {});
                answer.await
            }
        }?;
        self.wait_until(None);
        let confirmed = match replies.as_slice() {
            [_, redis::Value::Int(confirmed)] => u32::try_from(*confirmed).unwrap_or_default(),
            _ => return Err(StoreError::no_answer()),
        };
        if confirmed >= self.count {
            return Ok(());
        }
        let text = format!("{confirmed} of {} replicas confirmed within {within:?}", self.count);
        let replicas = Some((confirmed, self.count));
        Err(StoreError { replicas, ..StoreError::never(BackendError::new(text)) })
    }
}

impl RedisStore {
    /// Waits until the replicas have confirmed the answer, where the settings ask for that.
    pub(super) async fn wait_for_replicas(&self, called: &Called, deadline: Deadline) -> Result<(), StoreError> {
        match &self.replicas {
            Some(replicas) => Box::pin(replicas.confirm(&called.link, &called.live, deadline)).await,
            None => Ok(()),
        }
    }

    /// Waits until the replicas have confirmed the answers that count, if there are any. When they do not confirm, those
    /// answers become errors.
    pub(super) async fn wait_for_replicas_of<T>(
        &self,
        called: &Called,
        answers: &mut [Result<T, StoreError>],
        counts: impl Fn(&T) -> bool,
        deadline: Deadline,
    ) {
        let counts = |answer: &Result<T, StoreError>| answer.as_ref().is_ok_and(&counts);
        if self.replicas.is_some()
            && answers.iter().any(counts)
            && let Err(error) = self.wait_for_replicas(called, deadline).await
        {
            for answer in answers.iter_mut().filter(|answer| counts(answer)) {
                *answer = Err(error.clone());
            }
        }
    }
}
