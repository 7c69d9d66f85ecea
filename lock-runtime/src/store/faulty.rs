//! [`FaultyStore`]: an embedded store that fails on a test's command.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{sleep, timeout_at};

use super::memory::MemoryStore;
use super::{
    Adoption, Answer, Answers, Ask, Connection, Events, Forced, Giving, Ownership, Reach, Release, Renewal, Renewed,
    Seen, Store, StoreError, StoreKind, TicketAnswer, exactly_one,
};
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::mutex::Mutex;
use crate::share::Share;
use crate::token::Token;

/// A store with faults that a test switches on and off. Several such stores may share one memory, as processes share a server.
#[derive(Debug, Default)]
pub(crate) struct FaultyStore {
    pub(crate) memory: Arc<MemoryStore>,
    pub(crate) faults: Mutex<Faults>,
}

#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Since when the server is unreachable.
    down_since: Option<Moment>,
    /// How long each answer takes.
    pub(crate) pause: Duration,
    /// For each renewal that will find its lock gone, how many renewals are left until then, itself included.
    pub(crate) renewals_until_loss: Vec<u32>,
    /// The names of the locks that were granted.
    pub(crate) granted: Vec<String>,
    listeners: Vec<Weak<dyn Events>>,
}

impl FaultyStore {
    /// Makes the server unreachable, or reachable again. Leases are verified when the connection is back.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.faults.lock().down_since = is_down.then(Moment::now);
        self.interrupt();
    }

    /// Makes the server forget a lock, whoever owns it. The connection breaks as well, so the loss is noticed at once.
    pub(crate) fn forget(&self, key: &str) {
        self.memory.forget(key);
        self.interrupt();
    }

    fn interrupt(&self) {
        let listeners = self.faults.lock().listeners.clone();
        for events in listeners.iter().filter_map(Weak::upgrade) {
            events.on_interruption(&|_| true);
        }
    }

    /// Waits as long as the server takes to answer.
    async fn reach(&self, deadline: Deadline) -> Result<(), StoreError> {
        if let Some((_, error)) = self.outage("") {
            return Err(error);
        }
        let pause = self.faults.lock().pause;
        if pause.is_zero() {
            return Ok(());
        }
        let span = deadline.remaining();
        let slow = || StoreError { out_of_time: true, ..self.unanswered("", span) };
        timeout_at(deadline.on_timer(), sleep(pause)).await.map_err(|_| slow())
    }
}

/// Forwards each of these verbs once the server is reached.
macro_rules! reach_first {
    ($(async fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $answer:ty;)*) => {
        $(async fn $name(&self $(, $argument: $kind)*, deadline: Deadline) -> $answer {
            self.reach(deadline).await?;
            self.memory.$name($($argument,)* deadline).await
        })*
    };
}

impl Store for FaultyStore {
    fn kind(&self) -> &'static StoreKind {
        &StoreKind::SERVER
    }

    async fn claim(&self, ask: &Ask, deadline: Deadline) -> Result<Answer, StoreError> {
        exactly_one(self.ask(&[Ask { wait: false, ..ask.clone() }], deadline).await)
    }

    async fn ask(&self, asks: &[Ask], deadline: Deadline) -> Answers<Answer> {
        self.reach(deadline).await?;
        let answers = self.memory.ask(asks, deadline).await?;
        let granted = asks.iter().zip(&answers).filter(|(_, answer)| matches!(answer, Ok(Answer::Granted(_))));
        self.faults.lock().granted.extend(granted.map(|(ask, _)| ask.key.to_string()));
        Ok(answers)
    }

    async fn renew(&self, renewals: &[Renewal], deadline: Deadline) -> Answers<Renewed> {
        self.reach(deadline).await?;
        for renewal in renewals {
            let mut faults = self.faults.lock();
            let before = faults.renewals_until_loss.len();
            faults.renewals_until_loss.retain_mut(|left| {
                *left -= 1;
                *left > 0
            });
            let is_due = faults.renewals_until_loss.len() < before;
            drop(faults); // the next owner is notified, and may call back
            if is_due {
                self.memory.forget(&renewal.key);
            }
        }
        self.memory.renew(renewals, deadline).await
    }

    async fn adopt(&self, adoption: &Adoption, deadline: Deadline) -> Result<TicketAnswer, StoreError> {
        self.reach(deadline).await?;
        let adopted = self.memory.adopt(adoption, deadline).await?;
        if matches!(adopted, TicketAnswer::Granted(_)) {
            self.faults.lock().granted.push(adoption.ask.key.to_string());
        }
        Ok(adopted)
    }

    reach_first! {
        async fn release_one(release: &Release) -> Result<Ownership, StoreError>;
        async fn release(releases: &[Release]) -> Answers<Ownership>;
        async fn draw(key: &Arc<str>, token: &Token, share: Option<Share>, count: u32) -> Result<Option<u64>, StoreError>;
        async fn inspect(key: &str) -> Result<Option<Seen>, StoreError>;
        async fn force(key: &str, one: Option<(Share, Token)>) -> Result<Forced, StoreError>;
        async fn give(giving: &Giving) -> Result<Ownership, StoreError>;
    }

    fn connection(&self, _: &str) -> Connection {
        Connection { is_cut_off: !self.is_connected(), ..Connection::IN_PROCESS }
    }

    fn is_connected(&self) -> bool {
        self.faults.lock().down_since.is_none()
    }

    fn outage(&self, _: &str) -> Option<(Duration, StoreError)> {
        let since = self.faults.lock().down_since?;
        let refused = StoreError::later(BackendError::new("the server is down, as the test wants it"));
        Some((since.elapsed(), StoreError { reach: Reach::Unsent, ..refused }))
    }

    fn attach(&self, process: &str, events: Weak<dyn Events>) {
        self.faults.lock().listeners.push(Weak::clone(&events));
        self.memory.attach(process, events);
    }
}
