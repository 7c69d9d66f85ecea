//! How a [`Link`] makes its connection. Each attempt is a task of its own, and callers wait for its outcome.
//!
//! A caller that gives up does not end the attempt. Otherwise a connection that takes longer than each caller waits would never be made.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::{Pipeline, Value};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::call::arming;
use super::reader::{Reader, Receiver};
use super::server_clock::Drifting;
use super::sharded::Shard;
use super::{Anchor, Channel, Link, Live, Made, Purpose};
use crate::clock::{Deadline, Drift, Moment};
use crate::endpoint::Endpoint;
use crate::failure::CallError;
use crate::greeting::{self, OnFailover};

/// The next attempt to connect begins this long after one that failed.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);
/// How many attempts run at once. One more replaces the oldest.
const MOST_ATTEMPTS: usize = 4;
/// An attempt ends after this many connect timeouts.
const LIFE: u32 = 4;

/// An attempt in progress.
#[derive(Debug)]
pub(super) struct Attempt {
    generation: u64,
    begun: Moment,
    task: Option<AbortHandle>,
    /// Whether the attempt leads to the wrong server by now.
    is_overtaken: bool,
}

impl Attempt {
    pub(super) fn age(&self, now: Moment) -> Duration {
        now.since(self.begun)
    }

    /// Ends the attempt. The caller must not hold the link's lock: a task that ends reports to the link.
    fn abort(self) {
        if let Some(task) = self.task {
            task.abort();
        }
    }
}

/// What a caller without a connection finds.
pub(super) enum Outlook {
    Live(Arc<Live>),
    /// The last attempt failed. The next one may start at this instant.
    Failed(CallError, Instant),
    /// An attempt is in progress. A second one may start at this instant.
    UnderWay(Instant),
}

impl Link {
    /// Waits for a connection; starts an attempt if none is in progress.
    pub(super) async fn made_live(&self, deadline: Deadline) -> Result<Arc<Live>, CallError> {
        let limit = deadline.span().min(self.common.connect_timeout);
        self.made_within(Deadline::new(deadline.start(), limit)).await
    }

    /// Connects, for a caller with its own time limit.
    pub async fn connect(&self) -> Result<Arc<Live>, CallError> {
        self.made_within(Deadline::after(self.common.connect_timeout * LIFE)).await
    }

    #[cfg(any(test, feature = "simulation"))]
    fn abort_attempts(&self) {
        let attempts = std::mem::take(&mut self.state.lock().attempts);
        attempts.into_iter().for_each(Attempt::abort);
    }

    async fn made_within(&self, deadline: Deadline) -> Result<Arc<Live>, CallError> {
        let (end, mut has_waited) = (deadline.on_timer(), false);
        loop {
            // Register before looking, so that no change is missed.
            let changed = pin!(self.attempted.notified());
            let (another, earlier) = match self.live_or_attempt() {
                Outlook::Live(live) => return Ok(live),
                Outlook::Failed(error, _) if has_waited => return Err(error),
                // That was before this call. The server may be back since.
                Outlook::Failed(error, next) => (next, Some(error)),
                Outlook::UnderWay(another) => (another, None),
            };
            has_waited = true;
            if timeout_at(another.min(end), changed).await.is_err() && Instant::now() >= end {
                mutant!(AttemptEndsWithCaller => self.abort_attempts());
                // This task may have been polled late, while the connection was in time.
                let live = self.state.lock().live.clone();
                return live.ok_or_else(|| earlier.unwrap_or(CallError::NoConnection(deadline.span())));
            }
        }
    }

    /// The connection, the last failure, or an attempt in progress. Starts an attempt when one is due.
    ///
    /// When an attempt takes long, a second one starts: the first one's runtime may be blocked, or its first packets were lost while the
    /// server was away. The first attempt goes on, and the first connection that is ready wins.
    pub(super) fn live_or_attempt(&self) -> Outlook {
        let (generation, oldest, pause) = {
            let mut state = self.state.lock();
            if let Some(live) = state.live.clone() {
                return Outlook::Live(live);
            }
            if let Some((at, error)) = &state.failed
                && let pause = CONNECT_PAUSE.saturating_sub(at.elapsed())
                && !pause.is_zero()
            {
                return Outlook::Failed(error.clone(), Instant::now() + pause);
            }
            let (now, pause) = (Moment::now(), (self.common.command_timeout * 2).min(self.common.connect_timeout));
            if let Some(latest) = state.attempts.last() {
                let age = now.since(latest.begun);
                if age < pause {
                    return Outlook::UnderWay(Instant::now() + pause.saturating_sub(age));
                }
            }
            let oldest = (state.attempts.len() >= MOST_ATTEMPTS).then(|| state.attempts.remove(0));
            state.down_since.get_or_insert(now);
            let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
            state.attempts.push(Attempt { generation, begun: now, task: None, is_overtaken: false });
            (generation, oldest, pause)
        };
        if let Some(oldest) = oldest {
            oldest.abort();
        }
        self.begin(generation);
        Outlook::UnderWay(Instant::now() + pause)
    }

    /// Starts the attempt that was noted. The caller's runtime drives the connection.
    fn begin(&self, generation: u64) {
        let opening = Opening {
            under_way: UnderWay { link: Weak::clone(&self.this), generation },
            endpoint: self.endpoint.clone(),
            channel: self.channel.clone(),
            purpose: Arc::clone(&self.purpose),
            connect_timeout: self.common.connect_timeout,
            drift: self.common.drift,
        };
        let task = tokio::spawn(opening.run()).abort_handle();
        // A runtime that is shutting down has already dropped the task; then the attempt is gone from the list.
        if let Some(attempt) = self.state.lock().attempts.iter_mut().find(|attempt| attempt.generation == generation) {
            attempt.task = Some(task);
        }
    }

    /// Handles the outcome of an attempt.
    fn on_attempt(&self, generation: u64, outcome: Result<Opened, CallError>) {
        let mut state = self.state.lock();
        let Some(place) = state.attempts.iter().position(|attempt| attempt.generation == generation) else {
            // Another attempt replaced this one, and its connection is closed.
            return;
        };
        let is_latest = place + 1 == state.attempts.len();
        let Attempt { is_overtaken, .. } = state.attempts.remove(place);
        let outcome = match outcome {
            Ok(_) if is_overtaken => {
                Err(CallError::Unsuitable("another server became the master meanwhile".to_owned()))
            }
            Err(error) if state.was_connected => Err(error.of_known()),
            outcome => outcome,
        };
        match outcome {
            Ok(Opened { live, anchor, round_trip, marks, has_slots }) => {
                let others = std::mem::take(&mut state.attempts);
                let watch = live.wire.watch();
                live.wire.make_room_for(round_trip);
                state.live = Some(live);
                state.reader = self.is_of_callers().then(Reader::here);
                state.failed = None;
                state.is_failure_told = false;
                let away = state.broke.take().map(Moment::elapsed);
                state.silence = None;
                state.down_since = None;
                state.clock = Some(anchor);
                // The connection may lead to another server.
                state.drifting = Drifting::default();
                let again = std::mem::replace(&mut state.was_connected, true);
                self.set_round_trip(round_trip);
                self.marks.store(marks, Ordering::Relaxed);
                self.has_slots.store(has_slots, Ordering::Relaxed);
                drop(state);
                (self.common.spawn)(Box::pin(watch));
                others.into_iter().for_each(Attempt::abort);
                self.common.events.on_connected(self, away);
                if again {
                    // The server may have lost what was asked for and held. The answers on this connection are up to date.
                    self.interrupted();
                }
            }
            Err(error) => {
                // A later attempt knows more about the server than this one.
                let is_news = is_latest && !std::mem::replace(&mut state.is_failure_told, true);
                if is_latest {
                    state.failed = Some((Moment::now(), error.clone()));
                }
                drop(state);
                if is_news {
                    self.common.events.on_unreachable(self, error);
                }
            }
        }
        self.attempted.notify_waiters();
    }

    /// An attempt ended with its runtime, which says nothing about the server.
    fn on_attempt_gone(&self, generation: u64) {
        let mut state = self.state.lock();
        let before = state.attempts.len();
        state.attempts.retain(|attempt| attempt.generation != generation);
        let was_noted = state.attempts.len() < before;
        drop(state);
        if was_noted {
            self.attempted.notify_waiters();
        }
    }

    /// The connection of `generation` leads to the wrong server, whether it is in use or still being made.
    fn on_overtaken(&self, generation: u64) {
        for attempt in self.state.lock().attempts.iter_mut().filter(|attempt| attempt.generation == generation) {
            attempt.is_overtaken = true;
        }
        self.drop_connection(generation);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // A dropped manager leaves no half-open connections.
        let attempts = std::mem::take(&mut self.state.lock().attempts);
        attempts.into_iter().for_each(Attempt::abort);
    }
}

/// Reports to the link when the task of an attempt is dropped.
struct UnderWay {
    link: Weak<Link>,
    generation: u64,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(link) = self.link.upgrade() {
            link.on_attempt_gone(self.generation);
        }
    }
}

/// Everything that an attempt needs. It does not keep the link alive.
struct Opening {
    under_way: UnderWay,
    endpoint: Endpoint,
    channel: Option<Channel>,
    purpose: Arc<dyn Purpose>,
    connect_timeout: Duration,
    drift: Drift,
}

/// A connection that is ready.
struct Opened {
    live: Arc<Live>,
    anchor: Anchor,
    round_trip: Duration,
    marks: u32,
    has_slots: bool,
}

impl Opening {
    async fn run(self) {
        let life = self.connect_timeout * LIFE;
        // Boxed: its type is deeply nested.
        let opened: BoxFuture<'_, _> = Box::pin(self.open());
        let outcome = timeout(life, opened).await.unwrap_or(Err(CallError::NoConnection(life)));
        let UnderWay { link, generation } = &self.under_way;
        if let Some(link) = link.upgrade() {
            link.on_attempt(*generation, outcome);
        }
    }

    /// Takes two round trips, three with TLS: the TCP handshake, and the greeting together with all other commands.
    async fn open(&self) -> Result<Opened, CallError> {
        let UnderWay { link, generation } = &self.under_way;
        let generation = *generation;
        let hear = Receiver { link: Weak::clone(link), generation };
        let this = Weak::clone(link);
        let on_failover: OnFailover = Arc::new(move || {
            if let Some(link) = this.upgrade() {
                link.on_overtaken(generation);
            }
        });
        let mut greeted = self.endpoint.connect(hear, &self.commands(), self.connect_timeout, &on_failover).await?;
        greeted.check()?;
        let has_slots = greeted.has_slots();
        let mut replies = std::mem::take(&mut greeted.replies).into_iter();
        greeted.check_abilities(self.purpose.needs(), &mut replies)?;
        let time = greeted.need("`TIME`", replies.next())?;
        let time: (u64, u64) = redis::from_redis_value(time).map_err(redis::RedisError::from)?;
        let anchor = Anchor { sent: greeted.asked, store_micros: micros(time), drift: self.drift, node: None };
        let known = self.purpose.read(&mut replies)?;
        let has_alarms =
            !self.is_of_callers() && [replies.next(), replies.next()].iter().all(|reply| *reply == Some(Value::Okay));
        if self.channel.is_some() {
            match greeted.need_pushes(replies.next()) {
                // The background work can do without its channel.
                Err(CallError::Failed(_)) if !self.is_of_callers() => {}
                subscribed => subscribed?,
            }
        }
        // The background's connection belongs to no shard: its messages go to all nodes.
        let is_in_shard = self.endpoint.is_node() && self.is_of_callers();
        let shard = self.endpoint.is_node().then(|| replies.next()).filter(|_| is_in_shard).and_then(Shard::of);
        let live = Arc::new(Live {
            wire: greeted.wire,
            made: Made { generation, at: Moment::now() },
            has_alarms,
            shard,
            _listening: greeted.listening,
            kept: known.kept,
        });
        Ok(Opened { live, anchor, round_trip: greeted.round_trip, marks: known.marks, has_slots })
    }

    fn is_of_callers(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.is_of_callers)
    }

    fn commands(&self) -> Pipeline {
        let mut commands = redis::pipe();
        greeting::ask_for_abilities(self.purpose.needs(), &mut commands);
        commands.cmd("TIME");
        self.purpose.ask(&mut commands);
        if !self.is_of_callers() {
            // A server that refuses this reports no changed keys. The second command shows whether alarms can be armed.
            commands.cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN").arg("NOLOOP");
            commands.add_command(arming());
        }
        if let Some(channel) = &self.channel {
            commands.cmd("SUBSCRIBE").arg(&channel.name);
        }
        if self.endpoint.is_node() {
            commands.cmd("CLUSTER").arg("MYID");
        }
        commands
    }
}

/// The reply to `TIME` in microseconds.
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
