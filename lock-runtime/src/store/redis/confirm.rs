//! How replicas confirm what their master answered.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{Either, select};
use lock_wire::Called;
use redis::Value;
use tokio::time::{sleep, timeout_at};

use super::replicas::{Last, Replicas};
use super::{RedisStore, millis};
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::store::StoreError;

/// A channel without subscribers. A message to it counts as a write that the replicas get, but not in a cluster.
const WAIT_PROBE_CHANNEL: &str = "cache_lock:";
/// A failed confirmation is the reason that callers report for this long: by then all that waited for it have given up.
const FAILURE_REPORTED_FOR: Duration = Duration::from_millis(100);
/// An idle server checks only this often whether the time of a `WAIT` is up.
const SERVER_TICK: Duration = Duration::from_millis(100);

impl Replicas {
    /// Waits until enough replicas have the write behind the answer `called` about `key`, and all earlier writes on its connection.
    async fn confirm(&self, called: &Called, key: &str, deadline: Deadline) -> Result<(), StoreError> {
        let deadline = deadline.counted_from(Moment::now());
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        let confirming = async {
            let mut last = self.last.lock().await;
            if last.covers <= number {
                let covers = self.asked.load(Ordering::SeqCst);
                let deadline = deadline.counted_from(Moment::now());
                let outcome = self.ask(called, key, deadline).await;
                if outcome.is_err() && self.within_of(deadline) < self.within {
                    // A caller with more time may have more success.
                    return outcome;
                }
                *last = Last { covers, outcome };
            }
            last.outcome.clone()
        };
        let late = |_| Err(self.unconfirmed(deadline.span()).into());
        timeout_at(deadline.on_timer(), confirming).await.unwrap_or_else(late)
    }

    async fn ask(&self, Called { link, live, .. }: &Called, key: &str, deadline: Deadline) -> Result<(), StoreError> {
        let within = self.within_of(deadline);
        let mut marked = redis::pipe();
        // For a repeated grant, without another write on the connection, the server may answer `WAIT` at once although no replica has it.
        if link.has_slots() {
            if !link.is_own(key) {
                // The slot is migrating to this server.
                marked.cmd("ASKING");
            }
            marked.cmd("SET").arg(format!("{{{key}}}:confirm")).arg("").arg("PX").arg(1);
        } else {
            marked.cmd("PUBLISH").arg(WAIT_PROBE_CHANNEL).arg("");
        }
        marked.cmd("WAIT").arg(self.count).arg(millis(within));
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
        let confirmed = match replies.as_slice() {
            [.., redis::Value::Int(confirmed)] => u32::try_from(*confirmed).unwrap_or_default(),
            _ => return Err(StoreError::no_answer()),
        };
        if confirmed >= self.count {
            self.wait_until(None);
            return Ok(());
        }
        // A caller whose time ends just now waited for these replicas, too.
        self.wait_until(Some(Deadline::after(FAILURE_REPORTED_FOR)));
        let text = format!("{confirmed} of {} replicas confirmed within {within:?}", self.count);
        let replicas = Some((confirmed, self.count));
        Err(StoreError { replicas, ..StoreError::never(BackendError::new(text)) })
    }
}

impl RedisStore {
    /// Waits until the replicas have confirmed the answer, if the settings require it.
    pub(super) async fn wait_for_replicas(
        &self,
        called: &Called,
        key: &str,
        deadline: Deadline,
    ) -> Result<(), StoreError> {
        if called.known::<Replicas>().is_none() {
            return Ok(());
        }
        let (live, link) = (Arc::clone(&called.live), Arc::clone(&called.link));
        let called = Called { value: Value::Nil, sent: called.sent, repeated: called.repeated, live, link };
        let key = key.to_owned();
        let confirming = async move {
            let Some(replicas) = called.known::<Replicas>() else { return Ok(()) };
            replicas.confirm(&called, &key, deadline).await
        };
        // A task of its own: others wait for the same confirmation, whether the one that asked first is polled again or not.
        tokio::spawn(confirming).await.unwrap_or_else(|_| Err(StoreError::no_answer()))
    }

    /// Waits until the replicas have confirmed the answers that count, if there are any. If they do not, those answers become errors.
    pub(super) async fn wait_for_replicas_of<T>(
        &self,
        (called, key): (&Called, &str),
        answers: &mut [Result<T, StoreError>],
        counts: impl Fn(&T) -> bool,
        deadline: Deadline,
    ) {
        let counts = |answer: &Result<T, StoreError>| answer.as_ref().is_ok_and(&counts);
        if called.known::<Replicas>().is_some()
            && answers.iter().any(counts)
            && let Err(error) = self.wait_for_replicas(called, key, deadline).await
        {
            for answer in answers.iter_mut().filter(|answer| counts(answer)) {
                *answer = Err(error.clone());
            }
        }
    }
}
