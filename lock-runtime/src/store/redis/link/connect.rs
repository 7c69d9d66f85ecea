//! How a [`Link`] makes its connection: one task for all, and whoever needs it next if that one stands still.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use redis::AsyncConnectionConfig;
use tokio::time::timeout;

use super::super::endpoint::Alarm;
use super::super::failure::CallError;
use super::super::push::Receiver;
#[cfg(feature = "quorum")]
use super::super::vote::Vote;
use super::{Gate, Link, Live, Made};
use crate::clock::{Deadline, Moment};
use crate::observe;
use crate::store::Anchor;

/// A failed attempt to connect speaks for everybody who comes within this time.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);
/// Commands in flight before a sender has to wait; the crate's 50 makes a thousand tasks wait in turn.
const IN_FLIGHT: usize = 4096;

impl Link {
    /// Makes the connection.
    pub(super) async fn made_live(&self, by: Deadline) -> Result<Live, CallError> {
        let limit = by.span().min(self.connect_timeout);
        match timeout(limit, self.connect()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(CallError::NoConnection(limit)),
        }
    }

    /// Connects, unless somebody else just did, or just failed to.
    pub(crate) async fn connect(&self) -> Result<Live, CallError> {
        let _connecting = self.turn_to_connect().await;
        {
            let state = self.locked();
            if let Some(live) = state.live.clone() {
                return Ok(live);
            }
            if let Some((at, error)) = &state.failed
                && at.elapsed() < CONNECT_PAUSE
            {
                return Err(error.clone());
            }
        }
        let outcome = self.open().await;
        let mut state = self.locked();
        let of_known = |error: CallError| if state.was_connected { error.of_known() } else { error };
        let outcome = outcome.map_err(of_known).and_then(|live| {
            let overtaken = || CallError::Unsuitable("another server became the master meanwhile".to_owned());
            if state.overtaken == live.made.generation { Err(overtaken()) } else { Ok(live) }
        });
        match &outcome {
            // This task was overtaken.
            Ok(_) if let Some(live) = &state.live => return Ok(live.clone()),
            Ok(live) => {
                state.live = Some(live.clone());
                state.failed = None;
                state.silent_since = None;
                let again = std::mem::replace(&mut state.was_connected, true);
                drop(state);
                observe::connected(&self.server);
                if again {
                    // Whatever was asked for and held before may be gone: on this connection the answers are new.
                    self.interrupted();
                }
            }
            Err(error) => state.failed = Some((Moment::now(), error.clone())),
        }
        outcome
    }

    /// Waits while somebody else connects, but not for long: the runtime of whoever does may stand still.
    async fn turn_to_connect(&self) -> tokio::sync::OwnedMutexGuard<()> {
        let gate = || self.connecting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let entered = Arc::clone(&gate());
            if let Ok(turn) = timeout(self.command_timeout * 2, Arc::clone(&entered).lock_owned()).await {
                return turn;
            }
            let mut gate = gate();
            if Arc::ptr_eq(&gate, &entered) {
                // One of those who waited goes next, and the others wait for that one.
                *gate = Gate::default();
            }
        }
    }

    async fn open(&self) -> Result<Live, CallError> {
        let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        let config = AsyncConnectionConfig::new()
            // The calls' own deadlines are the only ones.
            .set_response_timeout(None)
            .set_connection_timeout(Some(self.connect_timeout))
            .set_pipeline_buffer_size(IN_FLIGHT)
            .set_push_sender(Receiver { link: Weak::clone(&self.this), generation });
        let this = Weak::clone(&self.this);
        let alarm: Alarm = Arc::new(move || {
            if let Some(link) = this.upgrade() {
                link.overtaken(generation);
            }
        });
        let greeted = self.endpoint.connect(config, self.connect_timeout, &alarm).await?;
        greeted.check()?;
        let mut connection = greeted.connection;
        let sent = Moment::now();
        let time: (u64, u64) = redis::cmd("TIME").query_async(&mut connection).await?;
        self.learn_anew(Anchor { sent, store_micros: micros(time), drift: self.drift });
        #[cfg(feature = "quorum")]
        let vote = match self.max_lease {
            Some(max_lease) => Some(Arc::new(Vote::read(&mut connection, max_lease, &self.sighting).await?)),
            None => None,
        };
        if let Some(process) = &self.process {
            connection.subscribe(format!("cache_lock:{process}")).await?;
        }
        Ok(Live {
            connection,
            made: Made { generation, at: Moment::now() },
            _listening: greeted.listening,
            #[cfg(feature = "quorum")]
            vote,
        })
    }
}

/// What `TIME` says, in one number.
fn micros((seconds, micros): (u64, u64)) -> u64 {
    seconds.saturating_mul(1_000_000).saturating_add(micros)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_time_of_the_server_overflows(seconds: u64, micros: u64) {
            prop_assert!(super::micros((seconds, micros)) >= micros);
        }
    }
}
