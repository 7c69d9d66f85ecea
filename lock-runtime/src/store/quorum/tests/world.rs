//! [`World`]: in-memory servers that fail on command.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::super::{Grants, Quorum};
use crate::BackendError;
use crate::clock::Deadline;
use crate::share::Share;
use crate::store::memory::MemoryStore;
use crate::store::voter::{Age, Eligibility, Sighting, Voter};
use crate::store::{
    Adoption, Answer, Answers, Ask, Events, Forced, Giving, Ownership, Reach, Release, Renewal, Renewed, Seen, Store,
    StoreError, StoreKind, TicketAnswer, exactly_one,
};
use crate::timing::CLAIM;
use crate::token::Token;

pub(super) const KEY: &str = "p:k";
pub(super) const PATIENCE: Duration = Duration::from_millis(100);
pub(super) const COMMAND: Duration = Duration::from_millis(500);
/// The longest lease.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

/// How a server behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Up,
    Refuses,
    /// Executes nothing, and does not answer.
    Silent,
    /// Executes the verb, but its answer does not arrive.
    Mute,
    /// Executes the verb only after this time.
    Late(Duration),
}

/// An in-memory server.
#[derive(Debug)]
pub(super) struct Server {
    name: String,
    store: Arc<MemoryStore>,
    mode: Mutex<Mode>,
    pub(super) eligibility: Mutex<Eligibility>,
    /// Its last restart, if any.
    restarted: Mutex<Option<Restarted>>,
    sighting: Sighting,
}

/// A server process that started without its predecessor's data.
#[derive(Clone, Debug)]
struct Restarted {
    run_id: String,
    at: Instant,
    /// How far its wall clock has been set forward since.
    step: Duration,
}

impl Server {
    /// As in [`crate::store::redis`], with the age that the server reports.
    fn eligibility(&self) -> Eligibility {
        let mut eligibility = self.eligibility.lock().unwrap();
        if let Some(Restarted { run_id, at, step }) = self.restarted.lock().unwrap().clone()
            && *eligibility != Eligibility::InService
        {
            let left = Age::new(self.sighting.first(&run_id), at.elapsed() + step).left(LONGEST);
            *eligibility =
                if left.is_zero() { Eligibility::Eligible { is_marked: true } } else { Eligibility::Restarted(left) };
        }
        *eligibility
    }

    fn mode(&self) -> Mode {
        *self.mode.lock().unwrap()
    }

    /// Runs a verb according to the server's mode.
    async fn play<T>(&self, by: Deadline, verb: impl AsyncFnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let silence = || StoreError { out_of_time: true, ..StoreError::later(BackendError::new("no answer")) };
        let limit = by.span().min(COMMAND);
        match self.mode() {
            Mode::Up => verb().await,
            Mode::Refuses => {
                let refused = StoreError::later(BackendError::new("connection refused"));
                Err(StoreError { reach: Reach::Unsent, ..refused })
            }
            Mode::Late(time) => {
                sleep(time).await;
                verb().await
            }
            Mode::Silent => {
                sleep(limit).await;
                Err(silence())
            }
            Mode::Mute => {
                let _ = verb().await;
                sleep(limit).await;
                Err(silence())
            }
        }
    }
}

/// The quorum has its servers in an `Arc`, as the test does.
pub(super) type Shared = Arc<Server>;

impl Store for Shared {
    fn kind(&self) -> &'static StoreKind {
        &StoreKind::SERVER
    }

    async fn claim(&self, ask: &Ask, by: Deadline) -> Result<Answer, StoreError> {
        self.eligibility.lock().unwrap().vote()?;
        self.play(by, async || self.store.claim(ask, by).await).await
    }

    async fn ask(&self, asks: &[Ask], by: Deadline) -> Answers<Answer> {
        self.eligibility.lock().unwrap().vote()?;
        self.play(by, async || self.store.ask(asks, by).await).await
    }

    async fn release_one(&self, release: &Release, by: Deadline) -> Result<Ownership, StoreError> {
        self.play(by, async || self.store.release_one(release, by).await).await
    }

    async fn release(&self, releases: &[Release], by: Deadline) -> Answers<Ownership> {
        self.play(by, async || self.store.release(releases, by).await).await
    }

    async fn renew(&self, renewals: &[Renewal], by: Deadline) -> Answers<Renewed> {
        self.play(by, async || self.store.renew(renewals, by).await).await
    }

    async fn draw(
        &self,
        key: &Arc<str>,
        token: &Token,
        share: Option<Share>,
        count: u32,
        by: Deadline,
    ) -> Result<Option<u64>, StoreError> {
        self.play(by, async || self.store.draw(key, token, share, count, by).await).await
    }

    async fn inspect(&self, key: &str, by: Deadline) -> Result<Option<Seen>, StoreError> {
        self.play(by, async || self.store.inspect(key, by).await).await
    }

    async fn give(&self, giving: &Giving, by: Deadline) -> Result<Ownership, StoreError> {
        self.play(by, async || self.store.give(giving, by).await).await
    }

    async fn adopt(&self, adoption: &Adoption, by: Deadline) -> Result<TicketAnswer, StoreError> {
        self.play(by, async || self.store.adopt(adoption, by).await).await
    }

    async fn force(&self, key: &str, one: Option<(Share, Token)>, by: Deadline) -> Result<Forced, StoreError> {
        self.play(by, async || self.store.force(key, one.clone(), by).await).await
    }

    fn attach(&self, process: &str, events: Weak<dyn Events>) {
        self.store.attach(process, events);
    }
}

impl Voter for Shared {
    fn name(&self) -> &str {
        &self.name
    }

    fn identity(&self) -> Option<String> {
        Some(self.name.clone())
    }

    async fn probe(&self, by: Deadline) -> Result<Eligibility, StoreError> {
        self.play(by, async || Ok(self.eligibility())).await
    }

    async fn mark_in_service(&self, by: Deadline) -> Result<(), StoreError> {
        self.play(by, async || {
            *self.eligibility.lock().unwrap() = Eligibility::InService;
            Ok(())
        })
        .await
    }

    async fn raise(&self, key: &str, token: &Token, fence: u64, by: Deadline) -> Result<bool, StoreError> {
        self.play(by, async || Ok(self.store.raise(key, token, fence))).await
    }
}

/// Servers, and one process's view of them.
pub(super) struct World {
    pub(super) servers: Vec<Shared>,
    pub(super) quorum: Quorum<Shared>,
}

impl World {
    pub(super) fn of(count: usize) -> Self {
        Self::with_clocks(&vec![0; count])
    }

    /// Server `i`'s clock is `ahead[i]` µs ahead.
    pub(super) fn with_clocks(ahead: &[u64]) -> Self {
        let server = |(number, ahead): (usize, &u64)| {
            Arc::new(Server {
                name: format!("s{number}"),
                store: Arc::new(MemoryStore::ahead(*ahead)),
                mode: Mutex::new(Mode::Up),
                eligibility: Mutex::new(Eligibility::InService),
                restarted: Mutex::default(),
                sighting: Sighting::default(),
            })
        };
        let servers: Vec<_> = ahead.iter().enumerate().map(server).collect();
        Self { quorum: Quorum::new(servers.clone(), PATIENCE, Grants::default()), servers }
    }

    /// Another process with the same servers.
    pub(super) fn other(&self) -> Self {
        Self { servers: self.servers.clone(), quorum: Quorum::new(self.servers.clone(), PATIENCE, Grants::default()) }
    }

    pub(super) fn set(&self, number: usize, mode: Mode) {
        *self.servers[number].mode.lock().unwrap() = mode;
    }

    /// Restarts a server; its wall clock is set forward right after.
    pub(super) async fn restart(&self, number: usize, step: Duration) {
        let server = &self.servers[number];
        if let Some(owner) = server.store.look(KEY).0 {
            // The server forgets it.
            exactly_one(server.store.release(&[ask(owner.as_str()).withdrawal()], by()).await).unwrap();
        }
        let run_id = format!("{:?}", Instant::now());
        *server.restarted.lock().unwrap() = Some(Restarted { run_id, at: Instant::now(), step });
        *server.eligibility.lock().unwrap() = Eligibility::Restarted(LONGEST);
    }

    pub(super) fn owners(&self) -> Vec<Option<String>> {
        let owner = |server: &Shared| server.store.look(KEY).0.map(|token| token.as_str().to_owned());
        self.servers.iter().map(owner).collect()
    }

    /// Grants a token on a single server.
    pub(super) async fn give(&self, number: usize, token: &str) {
        let answer = self.servers[number].store.claim(&ask(token), by()).await;
        assert!(matches!(answer, Ok(Answer::Granted(_))));
    }

    pub(super) async fn claim(&self, token: &str) -> Result<Answer, StoreError> {
        self.quorum.claim(&ask(token), by()).await
    }

    pub(super) async fn wait(&self, token: &str) -> Result<Answer, StoreError> {
        exactly_one(self.quorum.ask(&[ask(token)], by()).await)
    }

    pub(super) async fn release(&self, token: &str) -> Result<bool, StoreError> {
        self.quorum.release_one(&ask(token).withdrawal(), by()).await.map(|it| it == Ownership::Owned)
    }

    pub(super) async fn renew(&self, token: &str) -> Result<Renewed, StoreError> {
        let renewal = Renewal {
            key: KEY.into(),
            token: Token::foreign(token),
            share: None,
            lease: Duration::from_secs(30),
            grace: Duration::ZERO,
            arms: false,
        };
        exactly_one(self.quorum.renew(&[renewal], by()).await)
    }
}

pub(super) fn by() -> Deadline {
    Deadline::after(COMMAND)
}

pub(super) fn ask(token: &str) -> Ask {
    let (token, give_up) = (Token::foreign(token), Deadline::after(Duration::from_mins(1)));
    Ask { key: KEY.into(), token, share: None, claim: CLAIM, wait: true, replaces: None, fences: 0, give_up }
}
