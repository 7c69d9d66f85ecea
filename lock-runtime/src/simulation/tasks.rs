//! [`Task`]: uses locks in every way, and records the outcomes.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use fastrand::Rng;
use futures_executor::LocalPool;
use futures_util::FutureExt as _;
use history::Wanted;
use history::claims::HARNESS;
use history::event::{How, What};
use tokio::time::{Instant, Sleep, sleep};

use super::late::Late;
use super::network::Network;
use super::time;
use super::world::{Plan, nanos};
use crate::{LockError, LockGuard, LockManager, LockRequest};

/// The timeout of an acquire that outlasts any crash, after the faults.
const PATIENT: Duration = Duration::from_secs(20);

#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the world or the task")]
pub(super) struct Task {
    notes: Notes,
    manager: LockManager,
    keys: u64,
    /// The shortest and the longest lease, in milliseconds.
    shortest: u64,
    lease: u64,
    /// When the faults end.
    end: Instant,
    is_busy: bool,
    /// Whether a single try waits for as many replies as a fencing token takes.
    fences_tries: bool,
    /// Whether holds are long, to show what is wrong with the server.
    is_long: bool,
    is_forgetful: bool,
    /// Whether it drops its hold and asks again in the same instant.
    is_greedy: bool,
    /// Whether it is polled late now and then.
    is_late: bool,
    /// For how many milliseconds its leases may linger.
    linger: u64,
    random: Rng,
}

#[derive(Clone)]
struct Notes {
    network: Arc<Network>,
    process: String,
    task: u32,
    attempt: u32,
}

impl Notes {
    fn note(&self, what: What) {
        self.network.note(&self.process, self.task, what);
    }

    fn granted(&self, until: u64, fence: Option<u64>) {
        self.note(What::Granted { attempt: self.attempt, until, fence });
    }

    fn refused(&self, how: How, text: String) {
        self.note(What::Refused { attempt: self.attempt, how, text });
    }

    fn release(&self, dropped: bool) {
        self.note(What::Release { attempt: self.attempt, dropped });
    }

    fn released(&self, outcome: Result<(), LockError>) {
        let (how, text) = outcome.map_or_else(|error| told(&error), |()| (How::Done, String::new()));
        self.note(What::Released { attempt: self.attempt, how, text });
    }

    /// Records how a body ended and whether it was `entered`; `None` when it was dropped.
    fn ended(&self, outcome: Option<Result<(), LockError>>, entered: &AtomicBool) {
        match outcome {
            Some(outcome) if entered.load(Ordering::Relaxed) => self.released(outcome),
            None if entered.load(Ordering::Relaxed) => {
                let (attempt, text) = (self.attempt, String::new());
                self.note(What::Released { attempt, how: How::Cancelled, text });
            }
            Some(Err(error)) => {
                let (how, text) = told(&error);
                self.refused(how, text);
            }
            Some(Ok(())) | None => self.refused(How::Cancelled, String::new()),
        }
    }

    /// Checks the deadline of a hold; returns whether there is time left.
    fn look(&self, guard: &LockGuard) -> bool {
        let until = until(guard);
        self.note(What::Seen { attempt: self.attempt, until });
        until > 0
    }
}

impl Task {
    pub(super) fn new(
        network: &Arc<Network>,
        process: &str,
        task: u32,
        manager: LockManager,
        plan: &Plan,
        end: Instant,
        random: Rng,
    ) -> Self {
        let notes = Notes { network: Arc::clone(network), process: process.to_owned(), task, attempt: 0 };
        let lingers = lingers(process);
        let (is_busy, is_greedy) = (plan.is_busy, plan.is_busy && task == 0);
        Self {
            notes,
            manager,
            keys: plan.keys,
            shortest: plan.shortest_lease(),
            lease: plan.lease,
            end,
            is_busy,
            // On a quorum a draw takes two more round trips, and a command has half a second.
            fences_tries: plan.servers == 1 || plan.round_trip * 3 < 500,
            is_long: plan.forgetful || plan.stalls > 0.0,
            is_forgetful: plan.forgetful,
            is_greedy,
            is_late: plan.late != Late::Never,
            linger: if lingers { plan.linger } else { 0 },
            random,
        }
    }

    /// Uses locks during the faults and a while longer.
    pub(super) async fn live(mut self) {
        let longer = Duration::from_millis(if self.is_busy { 200 } else { 2000 });
        while Instant::now() < self.end + longer {
            let pause = if self.is_busy { 1 } else { *self.random.choice(&[2, 30, 300]).unwrap_or(&2) };
            if !self.is_greedy {
                sleep(Duration::from_millis(self.random.u64(0..=pause))).await;
            }
            let timeout = if self.random.u8(..8) == 0 { 0 } else { self.random.u64(..4000) };
            self.once(Duration::from_millis(timeout)).await;
        }
        self.is_greedy = false;
        for _ in 0..2 {
            self.once(PATIENT).await;
        }
    }

    async fn once(&mut self, timeout: Duration) {
        self.notes.attempt += 1;
        let key = self.random.u64(..self.keys);
        let wanted = Wanted {
            timeout: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            expire: self.random.u64(self.shortest..=self.lease),
            renew: self.random.bool(),
            fenced: self.random.bool() && (self.fences_tries || !timeout.is_zero()),
            ..Wanted::default()
        };
        let used = self.use_of(timeout);
        self.notes.note(What::Acquire { attempt: self.notes.attempt, key: format!("k:{key}"), wanted });
        let request = self.manager.lock("k", &key).timeout(timeout).expire(wanted.expire());
        let mut request = request.renew(wanted.renew).fenced(wanted.fenced);
        if self.linger > 0 && self.random.u8(..4) != 0 {
            request = request.linger(Duration::from_millis(self.random.u64(0..=self.linger)));
        }
        let is_patient = timeout == PATIENT;
        // It is not known until when a body relies on the lock.
        if !self.is_greedy && !self.is_forgetful && self.random.u8(..3) == 0 {
            let stranger = self.stranger(key);
            self.run(request, used, is_patient, stranger).await;
        } else {
            self.hold(request, used, is_patient).await;
        }
    }

    /// Another task that tries to get the lock, and that an executor polls inside a body.
    fn stranger(&self, key: u64) -> Option<Stranger> {
        if !self.notes.attempt.is_multiple_of(4) {
            return None;
        }
        let wanted = Wanted { timeout: 0, expire: self.lease.max(50), renew: true, ..Wanted::default() };
        let task = STRANGER + self.notes.task;
        let notes = Notes { task, ..self.notes.clone() };
        let request = self.manager.lock("k", &key).timeout(Duration::ZERO).expire(wanted.expire()).renew(true);
        Some(Box::pin(async move {
            notes.note(What::Acquire { attempt: notes.attempt, key: format!("k:{key}"), wanted });
            let body = Body::new(&notes, Duration::from_millis(5), None);
            let entered = Arc::clone(&body.entered);
            // It is polled with the body that drives it, and has to be done by then.
            let outcome = polled(request.run(body), Some(2)).await;
            notes.ended(outcome, &entered);
        }))
    }

    /// How long the lock is used: mostly briefly, and sometimes for longer than its lease. No use reaches far beyond the faults, when
    /// every task has to get its turn.
    fn use_of(&mut self, timeout: Duration) -> Duration {
        if self.is_busy {
            return Duration::from_millis(1);
        }
        let left = self.end.saturating_duration_since(Instant::now() + timeout);
        let longest = left.min(Duration::from_millis((self.lease * 2).min(8000)));
        let longest = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX).max(40);
        let most = if self.is_long { [1, 40, 40, longest, longest] } else { [1, 8, 40, 40, longest] };
        let most = *self.random.choice(&most).unwrap_or(&1);
        Duration::from_millis(self.random.u64(0..=most))
    }

    /// After how many polls a future is dropped; mostly never.
    fn patience(&mut self, is_patient: bool) -> Option<u32> {
        (!is_patient && self.random.u8(..3) == 0).then(|| self.random.u32(1..12))
    }

    async fn hold(&mut self, request: LockRequest, used: Duration, is_patient: bool) {
        let patience = self.patience(is_patient);
        let guard = match polled(request.acquire(), patience).await {
            Some(Ok(guard)) => guard,
            Some(Err(error)) => {
                let (how, text) = told(&error);
                return self.notes.refused(how, text);
            }
            None => return self.notes.refused(How::Cancelled, String::new()),
        };
        self.notes.granted(until(&guard), guard.fencing_token().map(u64::from));
        let mut left = used;
        while !left.is_zero() {
            let step = left.min(Duration::from_millis(self.random.u64(1..200)));
            sleep(step).await;
            left -= step;
            self.notes.look(&guard);
            if self.random.u8(..12) == 0 {
                let lease = Duration::from_millis(self.random.u64(self.shortest..=self.lease));
                let how = guard.extend(lease).await.map_or_else(|error| told(&error).0, |()| How::Done);
                let attempt = self.notes.attempt;
                self.notes.note(What::Extended { attempt, lease: nanos(lease) / 1_000_000, how });
                self.notes.look(&guard);
            }
        }
        if self.is_late && !is_patient && self.random.u8(..8) == 0 {
            return self.release_late(guard).await;
        }
        match self.random.u8(..4) {
            how if how == 0 || self.is_greedy => {
                self.notes.release(true);
                drop(guard);
                self.notes.released(Ok(()));
            }
            1 if !is_patient => {
                self.notes.release(true);
                let _ = polled(guard.release(), Some(self.random.u32(1..6))).await;
                self.notes.released(Ok(()));
            }
            _ => {
                self.notes.release(false);
                let outcome = guard.release().await;
                self.notes.released(outcome);
            }
        }
    }

    /// Loses the connection, begins to release, and is not polled for a while.
    async fn release_late(&mut self, guard: LockGuard) {
        let Notes { network, process, .. } = &self.notes;
        network.cut(Some(process));
        let (kind, target, from) = ("Cut".to_owned(), "wire".to_owned(), time::now().unwrap_or_default());
        network.note(HARNESS, 0, What::Fault { kind, target, from });
        self.notes.release(false);
        let mut releasing = Box::pin(guard.release());
        let outcome = if let Some(outcome) = releasing.as_mut().now_or_never() {
            outcome
        } else {
            sleep(Duration::from_millis(self.random.u64(500..4000))).await;
            releasing.await
        };
        self.notes.released(outcome);
    }

    async fn run(&mut self, request: LockRequest, used: Duration, is_patient: bool, stranger: Option<Stranger>) {
        let patience = self.patience(is_patient);
        let body = Body::new(&self.notes, used, stranger);
        let entered = Arc::clone(&body.entered);
        let outcome = polled(request.run(body), patience).await;
        self.notes.ended(outcome, &entered);
    }
}

/// A task of an executor that a body drives.
type Stranger = Pin<Box<dyn Future<Output = ()> + Send>>;
/// A stranger's number is this plus the number of the task whose body polls it.
const STRANGER: u32 = 2000;

/// A body, which believes that it holds the lock from its first poll to its last.
struct Body {
    notes: Notes,
    work: Pin<Box<Sleep>>,
    entered: Arc<AtomicBool>,
    is_over: bool,
    /// `None` once it is done.
    stranger: Option<Stranger>,
}

impl Body {
    fn new(notes: &Notes, used: Duration, stranger: Option<Stranger>) -> Self {
        let (notes, work) = (notes.clone(), Box::pin(sleep(used)));
        Self { notes, work, entered: Arc::default(), is_over: false, stranger }
    }

    /// Drives an executor for one poll.
    fn poll_stranger(&mut self) {
        let Some(stranger) = &mut self.stranger else { return };
        let poll = std::future::poll_fn(|context| Poll::Ready(stranger.as_mut().poll(context)));
        if LocalPool::new().run_until(poll).is_ready() {
            self.stranger = None;
        }
    }
}

impl Future for Body {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let until = self.notes.network.next_instant() + 1;
        if self.entered.swap(true, Ordering::Relaxed) {
            self.notes.note(What::Seen { attempt: self.notes.attempt, until });
        } else {
            self.notes.granted(until, None);
        }
        self.poll_stranger();
        let polled = self.work.as_mut().poll(context);
        if polled.is_ready() {
            self.is_over = true;
            self.notes.release(false);
        }
        polled
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if !self.is_over && self.entered.load(Ordering::Relaxed) {
            self.notes.release(true);
        }
    }
}

/// Polls a future at most this many times, and then drops it.
async fn polled<F: Future>(future: F, most: Option<u32>) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut polls = 0;
    std::future::poll_fn(|context| {
        polls += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // This was its last poll: nothing would wake this task for dropping it.
            Poll::Pending if most == Some(polls) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Whether leases linger in this process, in a world where they do in some.
pub(super) fn lingers(process: &str) -> bool {
    process.starts_with("p0") || process.starts_with("p2")
}

/// The instant until which a hold is good; 0 when it is over.
pub(super) fn until(guard: &LockGuard) -> u64 {
    let now = time::now().unwrap_or_default();
    match guard.remaining() {
        Duration::ZERO => 0,
        remaining => now + nanos(remaining),
    }
}

pub(super) fn told(error: &LockError) -> (How, String) {
    let how = match error {
        LockError::Timeout { .. } => How::Busy,
        LockError::Lost { .. } => How::Lost,
        LockError::Backend { .. } | LockError::Connect { .. } => How::Unreachable,
        _ => How::Failed,
    };
    let text = error.to_string();
    assert!(!text.contains("within 0ns"), "{text}");
    (how, text)
}
