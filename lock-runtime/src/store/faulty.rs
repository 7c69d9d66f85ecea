//! [`FaultyStore`]: an embedded store that fails when a test tells it to.

use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use tokio::time::{sleep, timeout_at};

use super::memory::MemoryStore;
use super::{
    Adoption, Answer, Answers, Ask, Connection, Events, Forced, Giving, Ownership, Reach, Release, Released, Renewal,
    Renewed, Seen, Store, StoreError, StoreKind, TicketAnswer,
};
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::mutex::Mutex;
use crate::share::Share;
use crate::token::Token;

/// A store whose faults a test switches on and off. Several such stores may share one memory, as processes share a server.
#[derive(Debug, Default)]
pub(crate) struct FaultyStore {
    memory: Arc<MemoryStore>,
    faults: Mutex<Faults>,
}

#[derive(Debug, Default)]
struct Faults {
    /// Since when the server can't be reached.
    down_since: Option<Moment>,
    /// How long each answer takes.
    pause: Duration,
    /// How many renewals are left until each that finds that the lock is gone.
    renewals_until_loss: Vec<u32>,
    /// The names of the locks that were granted.
    granted: Vec<String>,
    listeners: Vec<Weak<dyn Events>>,
}

impl FaultyStore {
    /// A store of another process on the same memory, without faults.
    pub(crate) fn of_other_process(&self) -> Self {
        Self { memory: Arc::clone(&self.memory), faults: Mutex::default() }
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        // Nothing that can panic runs under this lock.
        self.faults.lock()
    }

    /// Makes the server unreachable, or reachable again. Leases are verified when the connection is back.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.faults().down_since = is_down.then(Moment::now);
        self.interrupt();
    }

    pub(crate) fn set_pause(&self, pause: Duration) {
        self.faults().pause = pause;
    }

    /// Makes the server forget a lock, whoever has it. The connection breaks as well, so the loss is noticed at once.
    pub(crate) fn forget(&self, key: &str) {
        self.memory.forget(key);
        self.interrupt();
    }

    /// Makes the renewal with this number, counted from now on and from 1, find that the lock is gone.
    pub(crate) fn lose_at_renewal(&self, number: u32) {
        self.faults().renewals_until_loss.push(number);
    }

    pub(crate) fn granted(&self) -> Vec<String> {
        self.faults().granted.clone()
    }

    fn interrupt(&self) {
        let listeners = self.faults().listeners.clone();
        for events in listeners.iter().filter_map(Weak::upgrade) {
            events.on_interruption(&|_| true);
        }
    }

    /// Waits as long as the server takes to answer.
    async fn reach(&self, deadline: Deadline) -> Result<(), StoreError> {
        if let Some((_, error)) = self.outage("") {
            return Err(error);
        }
        let pause = self.faults().pause;
        if pause.is_zero() {
            return Ok(());
        }
        let span = deadline.remaining();
        let slow = || StoreError { out_of_time: true, ..self.unanswered("", span) };
        timeout_at(deadline.on_timer(), sleep(pause)).await.map_err(|_| slow())
    }

    fn note_granted(&self, key: &str, answer: &Result<Answer, StoreError>) {
        if matches!(answer, Ok(Answer::Granted(_))) {
            self.faults().granted.push(key.to_owned());
        }
    }

    /// Counts the renewals, and forgets the locks whose loss is due.
    fn lose_due(&self, renewals: &[Renewal]) {
        for renewal in renewals {
            let mut faults = self.faults();
            let before = faults.renewals_until_loss.len();
            faults.renewals_until_loss.retain_mut(|left| {
                *left -= 1;
                *left > 0
            });
            let is_due = faults.renewals_until_loss.len() < before;
            drop(faults);
            if is_due {
                self.memory.forget(&renewal.key);
            }
        }
    }
}

impl Store for FaultyStore {
    fn kind(&self) -> &'static StoreKind {
        &StoreKind::SERVER
    }

    async fn claim(&self, ask: &Ask, deadline: Deadline) -> Result<Answer, StoreError> {
        self.reach(deadline).await?;
        let answer = self.memory.claim(ask, deadline).await;
        self.note_granted(&ask.key, &answer);
        answer
    }

    async fn ask(&self, asks: &[Ask], deadline: Deadline) -> Answers<Answer> {
        self.reach(deadline).await?;
        let answers = self.memory.ask(asks, deadline).await?;
        for (ask, answer) in asks.iter().zip(&answers) {
            self.note_granted(&ask.key, answer);
        }
        Ok(answers)
    }

    async fn release_one(&self, release: &Release, deadline: Deadline) -> Result<Released, StoreError> {
        self.reach(deadline).await?;
        self.memory.release_one(release, deadline).await
    }

    async fn release(&self, releases: &[Release], deadline: Deadline) -> Answers<Released> {
        self.reach(deadline).await?;
        self.memory.release(releases, deadline).await
    }

    async fn renew(&self, renewals: &[Renewal], deadline: Deadline) -> Answers<Renewed> {
        self.reach(deadline).await?;
        self.lose_due(renewals);
        self.memory.renew(renewals, deadline).await
    }

    async fn draw(
        &self,
        key: &Arc<str>,
        token: &Token,
        share: Option<Share>,
        count: u32,
        deadline: Deadline,
    ) -> Result<Option<u64>, StoreError> {
        self.reach(deadline).await?;
        self.memory.draw(key, token, share, count, deadline).await
    }

    async fn inspect(&self, key: &str, deadline: Deadline) -> Result<Option<Seen>, StoreError> {
        self.reach(deadline).await?;
        self.memory.inspect(key, deadline).await
    }

    async fn force(&self, key: &str, deadline: Deadline) -> Result<Forced, StoreError> {
        self.reach(deadline).await?;
        self.memory.force(key, deadline).await
    }

    async fn give(&self, giving: &Giving, deadline: Deadline) -> Result<Ownership, StoreError> {
        self.reach(deadline).await?;
        self.memory.give(giving, deadline).await
    }

    async fn adopt(&self, adoption: &Adoption, deadline: Deadline) -> Result<TicketAnswer, StoreError> {
        self.reach(deadline).await?;
        let adopted = self.memory.adopt(adoption, deadline).await?;
        if matches!(adopted, TicketAnswer::Granted(_)) {
            self.faults().granted.push(adoption.ask.key.to_string());
        }
        Ok(adopted)
    }

    fn connection(&self, _: &str) -> Connection {
        Connection { is_cut_off: !self.is_connected(), ..Connection::IN_PROCESS }
    }

    fn is_connected(&self) -> bool {
        self.faults().down_since.is_none()
    }

    fn outage(&self, _: &str) -> Option<(Duration, StoreError)> {
        let since = self.faults().down_since?;
        let refused = StoreError::later(BackendError::new("the server is down, as the test wants it"));
        Some((since.elapsed(), StoreError { reach: Reach::Unsent, ..refused }))
    }

    fn attach(&self, process: &str, events: Weak<dyn Events>) {
        self.faults().listeners.push(Weak::clone(&events));
        self.memory.attach(process, events);
    }
}
