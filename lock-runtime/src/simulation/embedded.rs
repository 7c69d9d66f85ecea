//! The embedded store compared with the scripts: both get the same verbs, give the same answers, and notify the same processes.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use fastrand::Rng;
use server_model::ModelServer;
use tokio::time::{Instant, sleep_until};

use super::network::Network;
use super::process::of_links;
use super::time::Simulated;
use crate::LockManager;
use crate::clock::{Deadline, Moment};
use crate::mutants::{Mutant, Seeded};
use crate::settings::Settings;
use crate::store::memory::MemoryStore;
use crate::store::redis::connections::of_callers;
use crate::store::{
    Adoption, Answer, Ask, Events, Forced, Giving, Ownership, Pushed, Release, Renewal, Renewed, Replacing, Store,
    TicketAnswer, exactly_one,
};
use crate::token::{Process as Caller, Token};

/// One verb per beat. Leases end between two beats, so a few milliseconds for a command make no difference: after a force the owner has
/// 25 and a half beats to stop.
const BEAT: Duration = Duration::from_millis(98);
const HALF: Duration = Duration::from_millis(49);
/// Ends before a server forgets a waiter whose asks have stopped.
const BEATS: u32 = 40;
const KEYS: [&str; 2] = ["p:a", "p:b"];

/// A store's answer.
#[derive(Debug, PartialEq)]
enum Said {
    Granted {
        contended: bool,
        fence: Option<Time>,
        left: Option<Time>,
    },
    Busy {
        owner: Token,
        left: Option<Time>,
        at: Option<Time>,
    },
    Replaced,
    Late,
    Released(Ownership),
    Renewed(Option<Time>),
    /// A renewal or an adoption was refused because the lock is released by force.
    MustStop,
    Given(Ownership),
    Over,
    Drawn(Option<Time>),
    Passed {
        key: String,
        token: Token,
        contended: bool,
        claim: Duration,
        at: Time,
    },
    Wanted(String),
    Seen(Option<(Token, Option<Time>, Vec<Token>)>),
    Forced(Forced),
    ToldToStop(String, Token),
}

/// In milliseconds, from now or since the store began. Two times are equal if they differ by no more than a few commands take.
#[derive(Debug)]
struct Time(u64);

impl PartialEq for Time {
    fn eq(&self, other: &Self) -> bool {
        self.0.abs_diff(other.0) < 20
    }
}

impl From<Duration> for Time {
    fn from(span: Duration) -> Self {
        Self(span.as_millis().try_into().unwrap())
    }
}

/// A message to a process.
enum Message {
    Grant(Pushed),
    Wait,
    Forced(Token),
}

/// The messages to one process.
#[derive(Default)]
struct Heard(Mutex<Vec<(String, Message)>>);

impl Events for Heard {
    fn on_grant(&self, key: &str, pushed: &Pushed) {
        self.0.lock().unwrap().push((key.to_owned(), Message::Grant(pushed.clone())));
    }

    fn on_contention(&self, key: &str) {
        self.0.lock().unwrap().push((key.to_owned(), Message::Wait));
    }

    fn on_forced(&self, key: &str, token: &Token) {
        self.0.lock().unwrap().push((key.to_owned(), Message::Forced(token.clone())));
    }

    fn on_interruption(&self, _: &dyn Fn(&str) -> bool) {}
}

/// One of the two stores.
struct Side<'a, S> {
    store: &'a S,
    heard: Vec<Arc<Heard>>,
    /// Its clock when it began, in microseconds.
    began: u64,
}

impl<'a, S: Store> Side<'a, S> {
    /// Every process listens to its own store.
    async fn new(stores: &[&'a S], callers: &[Caller]) -> Self {
        let listen = |(store, caller): (&&S, &Caller)| {
            let heard = Arc::new(Heard::default());
            let events: Weak<Heard> = Arc::downgrade(&heard);
            store.attach(caller.id(), events);
            heard
        };
        let heard = stores.iter().zip(callers).map(listen).collect();
        let first = ask("p:first", callers[0].next_token(Moment::now(), false, None, None), HALF, 1);
        let Ok(Answer::Granted(grant)) = exactly_one(stores[0].ask(&[first], by()).await) else {
            unreachable!("it is free")
        };
        Self { store: stores[0], heard, began: grant.fence.unwrap() }
    }

    fn since(&self, micros: u64) -> Time {
        Time(micros.wrapping_sub(self.began) / 1000)
    }

    fn answer(&self, answer: Answer) -> Said {
        match answer {
            Answer::Granted(grant) => Said::Granted {
                contended: grant.contended,
                fence: grant.fence.map(|fence| self.since(fence)),
                left: Some(grant.until.remaining().into()),
            },
            Answer::Busy(busy) => Said::Busy {
                owner: busy.owner,
                left: busy.frees_in.map(Time::from),
                at: busy.anchor.map(|anchor| self.since(anchor.store_micros)),
            },
            Answer::Replaced => Said::Replaced,
            Answer::Late => Said::Late,
        }
    }

    async fn does(&self, verb: &Verb) -> Said {
        match verb {
            Verb::Claim(ask) => match self.answer(self.store.claim(ask, by()).await.unwrap()) {
                // The reply to a plain `SET` has nothing more: even for the token's own lock it lacks the claim's remaining time.
                Said::Busy { owner, .. } => Said::Busy { owner, left: None, at: None },
                Said::Granted { contended, fence, .. } => Said::Granted { contended, fence, left: None },
                said => said,
            },
            Verb::Ask(ask) => self.answer(exactly_one(self.store.ask(std::slice::from_ref(ask), by()).await).unwrap()),
            Verb::GiveBack(release) => Said::Released(self.store.release_one(release, by()).await.unwrap()),
            Verb::Renew(renewal) => {
                match exactly_one(self.store.renew(std::slice::from_ref(renewal), by()).await).unwrap() {
                    Renewed::Until(until) => Said::Renewed(Some(until.remaining().into())),
                    Renewed::NotOwned => Said::Renewed(None),
                    Renewed::Forced => Said::MustStop,
                }
            }
            Verb::Draw(key, token, count) => {
                let first = self.store.draw(key, token, None, *count, by()).await.unwrap();
                Said::Drawn(first.map(|first| self.since(first)))
            }
            Verb::Look(key) => {
                let seen = self.store.inspect(key, by()).await.unwrap();
                Said::Seen(seen.map(|seen| (seen.owner, seen.frees_in.map(Time::from), seen.waiting)))
            }
            Verb::Force(key) => Said::Forced(self.store.force(key, None, by()).await.unwrap()),
            Verb::Give(giving) => Said::Given(self.store.give(giving, by()).await.unwrap()),
            Verb::Adopt(adoption) => match self.store.adopt(adoption, by()).await.unwrap() {
                TicketAnswer::Granted(grant) => self.answer(Answer::Granted(grant)),
                TicketAnswer::Over => Said::Over,
                TicketAnswer::Forced => Said::MustStop,
            },
        }
    }

    fn told(&self, process: usize) -> Vec<Said> {
        let told = std::mem::take(&mut *self.heard[process].0.lock().unwrap());
        let said = |(key, message): (String, Message)| match message {
            Message::Grant(Pushed { token, claim, store_micros, contended, .. }) => {
                Said::Passed { key, token, contended, claim, at: self.since(store_micros) }
            }
            Message::Wait => Said::Wanted(key),
            Message::Forced(token) => Said::ToldToStop(key, token),
        };
        told.into_iter().map(said).collect()
    }
}

fn by() -> Deadline {
    Deadline::after(Duration::from_secs(1))
}

fn ask(key: &str, token: Token, claim: Duration, fences: u32) -> Ask {
    let give_up = Deadline::after(Duration::from_mins(1));
    Ask { key: key.into(), token, share: None, claim, wait: true, replaces: None, fences, give_up }
}

#[derive(Debug)]
enum Verb {
    Claim(Ask),
    Ask(Ask),
    GiveBack(Release),
    Renew(Renewal),
    Draw(Arc<str>, Token, u32),
    Look(Arc<str>),
    Force(Arc<str>),
    Give(Giving),
    Adopt(Adoption),
}

/// Makes up the verbs for both.
struct Script<'a> {
    random: Rng,
    callers: &'a [Caller],
    /// Each with its claim.
    tokens: Vec<(Token, Duration)>,
    /// On a server, a plain claim takes a free lock past its queue.
    queued: BTreeSet<Arc<str>>,
}

impl Script<'_> {
    fn new_token(&mut self) -> (Token, Duration) {
        let caller = &self.callers[self.random.usize(..self.callers.len())];
        self.tokens.push((caller.next_token(Moment::now(), false, None, None), BEAT * self.random.u32(1..12) + HALF));
        self.tokens[self.tokens.len() - 1].clone()
    }

    fn some_token(&mut self) -> (Token, Duration) {
        let recent = self.tokens.len().saturating_sub(5)..self.tokens.len();
        if recent.is_empty() || self.random.u8(..4) == 0 {
            return self.new_token();
        }
        self.tokens[self.random.usize(recent)].clone()
    }

    fn new_ticket(&mut self) -> Token {
        let ticket = self.callers[0].ticket(Moment::now(), None, false);
        self.tokens.push((ticket.clone(), BEAT * 3 + HALF));
        ticket
    }

    fn some_ticket(&mut self) -> Token {
        let last = self.tokens.iter().rev().find(|(token, _)| token.is_ticket());
        let last = last.map(|(ticket, _)| ticket.clone());
        if let Some(ticket) = last { ticket } else { self.new_ticket() }
    }

    fn verb(&mut self) -> Verb {
        let (token, claim) = self.some_token();
        let key = self.random.choice(KEYS).unwrap_or_default();
        let fences = self.random.u32(..3);
        let ask = ask(key, token, claim, fences);
        match self.random.u8(..16) {
            0 if !self.queued.contains(&ask.key) => Verb::Claim(Ask { fences: 0, wait: false, ..ask }),
            0 => Verb::Ask(Ask { wait: false, ..ask }),
            1..=4 => {
                let replaces = (self.random.u8(..4) == 0).then(|| {
                    let name = if self.random.bool() { ask.token.clone() } else { self.some_token().0 };
                    Replacing { name, is_known: self.random.bool() }
                });
                Verb::Ask(Ask { replaces, ..ask })
            }
            5..=7 => Verb::GiveBack(Release { contended: self.random.bool(), ..ask.withdrawal() }),
            8 => {
                let lease = BEAT * self.random.u32(1..20) + HALF;
                Verb::Renew(Renewal {
                    key: ask.key,
                    token: ask.token,
                    share: None,
                    lease,
                    grace: Duration::ZERO,
                    arms: false,
                })
            }
            9 | 10 => Verb::Draw(ask.key, ask.token, 1 + fences),
            11 => Verb::Look(ask.key),
            12 => Verb::Force(ask.key),
            13 | 14 => {
                let ticket = self.new_ticket();
                Verb::Give(Giving { key: ask.key, token: ask.token, share: None, ticket, kept_for: ask.claim })
            }
            _ => Verb::Adopt(Adoption { ask, ticket: self.some_ticket() }),
        }
    }

    fn went(&mut self, verb: &Verb, said: &Said) {
        let queued = match verb {
            Verb::Ask(ask) if ask.wait && matches!(said, Said::Busy { .. }) => &ask.key,
            Verb::Force(_) => {
                if let Said::Forced(Forced::Leaving(mark)) = said {
                    // Its holder, or another process here, may release it.
                    self.tokens.push((mark.clone(), BEAT + HALF));
                }
                return;
            }
            _ => return,
        };
        self.queued.insert(Arc::clone(queued));
    }
}

async fn play(seed: u64) {
    let _time = Simulated::begin();
    let network = Network::new(ModelServer::new(), 1.0, Rng::with_seed(seed));
    // The last one is gone: it can't be notified of a grant.
    let callers = ["a", "b", "gone"].map(Caller::new);
    let over_network = |caller: &Caller| {
        let (endpoint, limit) = (network.host(caller.id()).endpoint(), Duration::from_secs(1));
        let settings = Settings { command_timeout: limit, connect_timeout: limit, ..Settings::default() };
        of_links(&settings).to_server(endpoint, Some(of_callers(caller.id())), None)
    };
    let scripts = [over_network(&callers[0]), over_network(&callers[1])];
    for store in &scripts {
        store.connect().await.unwrap();
    }
    let memory = MemoryStore::default();
    let server = Side::new(&scripts.each_ref(), &callers).await;
    let embedded = Side::new(&[&memory, &memory], &callers).await;
    memory.attach(callers[2].id(), Weak::<Heard>::new());
    let start = Instant::now();
    let random = Rng::with_seed(seed);
    let mut script = Script { random, callers: &callers, tokens: Vec::new(), queued: BTreeSet::new() };
    for beat in 1..BEATS {
        sleep_until(start + BEAT * beat).await;
        let verb = script.verb();
        let (there, here) = (server.does(&verb).await, embedded.does(&verb).await);
        assert_eq!(here, there, "seed {seed}, beat {beat}: {verb:?}");
        script.went(&verb, &here);
        // The pushes arrive.
        sleep_until(start + BEAT * beat + HALF / 2).await;
        for process in 0..2 {
            let (there, here) = (server.told(process), embedded.told(process));
            assert_eq!(here, there, "seed {seed}, beat {beat}, process {process}: {verb:?}");
        }
    }
    // By then no request that replaced an owner may ask again.
    sleep_until(start + BEAT * BEATS + Duration::from_mins(1)).await;
    for key in KEYS {
        for (token, claim) in &script.tokens {
            // The mark of a replaced owner, too.
            for token in [token.clone(), token.to_forced()] {
                embedded.does(&Verb::GiveBack(ask(key, token, *claim, 0).withdrawal())).await;
            }
        }
    }
    assert_eq!(
        format!("{memory:?}"),
        "MemoryStore { locks: 1, .. }",
        "seed {seed}: only the lock of the first ask is left"
    );
}

#[test]
fn the_embedded_store_says_what_the_scripts_say() {
    for seed in 0..600 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(play(seed));
    }
}

/// Tickets that are never adopted.
#[tokio::test(start_paused = true)]
async fn the_embedded_store_forgets_locks_that_ended_by_themselves() {
    for bug in [None, Some(Mutant::EndedLocksKept)] {
        let _seeded = Seeded::begin(bug);
        let locks = LockManager::in_memory();
        for key in 0..1000 {
            locks.lock("p", &key).acquire().await.unwrap().into_ticket(BEAT).await.unwrap();
            sleep_until(Instant::now() + HALF).await;
        }
        let shown = format!("{:?}", locks.core().store());
        let (_, left) = shown.split_once("locks: ").unwrap();
        let left: u32 = left.split_once(',').unwrap().0.parse().unwrap();
        assert_eq!(left < 500, bug.is_none(), "{bug:?}: {left}");
    }
}
