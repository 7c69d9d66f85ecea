//! What a lock does when something happens: a file for each event. Everything is a plain value, and time passes when a test says so.

use std::sync::Arc;
use std::task::{Wake, Waker as TaskWaker};
use std::time::Duration;

use super::plain::Plain;
use super::*;
use crate::OnBusy;
use crate::clock::{Deadline, Moment};
use crate::error::LossReason;
use crate::key::PrefixPlace;
use crate::mutants::{Mutant, Seeded};
use crate::mutex::Mutex;
use crate::protocol::{Answer, Ask, Busy, Grant, Pushed, Renewal, Renewed};
use crate::share::Share;
use crate::timing::{ASK_INTERVAL, CLAIM, FREE_PATIENCE, STREAK_TIME, TICK, UNCONFIRMED_FOR, WAITERS_KNOWN_FOR};
use crate::token::Token;

mod alarm;
mod answer;
mod close;
mod end;
mod enter;
mod give_up;
mod idle;
mod leave;
mod look;
mod poll;
mod push;
mod wait;

const LEASE: Duration = Duration::from_secs(30);
const MOMENT: Duration = Duration::from_micros(1);

/// That of a task that waits.
fn request() -> ResolvedRequest {
    ResolvedRequest {
        key: "p:k".into(),
        prefix: PrefixPlace::behind(None, 1),
        timeout: Duration::from_secs(2),
        expire: LEASE,
        renew: true,
        fenced: false,
        if_busy: IfBusy::Fails,
        on_busy: OnBusy::Wait,
        share: None,
        body: false,
        is_inside: false,
        linger_cs: 0,
        terms: None,
    }
}

fn single_try() -> ResolvedRequest {
    ResolvedRequest { timeout: Duration::ZERO, ..request() }
}

fn reader() -> ResolvedRequest {
    ResolvedRequest { share: Some(Share::READ), ..request() }
}

/// Plays the tasks of a process, its keeper and the store.
struct Stage {
    lock: Lock,
    env: Plain,
    /// The tasks that were woken.
    woken: Arc<Mutex<Vec<u64>>>,
    /// What the last call asked for besides.
    effects: Effects,
    /// The tasks that have entered, and were not polled.
    entrants: Vec<u64>,
}

struct Task(u64, Arc<Mutex<Vec<u64>>>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.1.lock().push(self.0);
    }
}

impl Stage {
    fn new() -> Self {
        Self::sharing(None)
    }

    fn sharing(share: Option<Share>) -> Self {
        Self {
            lock: Lock::default(),
            env: Plain::still(share),
            woken: Arc::default(),
            effects: Effects::default(),
            entrants: Vec::new(),
        }
    }

    /// With a store that has no queue.
    fn polling() -> Self {
        Self { env: Plain::still(None).polled(), ..Self::new() }
    }

    fn now(&self) -> Moment {
        self.env.now()
    }

    fn let_pass(&self, span: Duration) {
        self.env.let_pass(span);
    }

    /// Who was woken since the last time.
    fn woken(&self) -> Vec<u64> {
        std::mem::take(&mut *self.woken.lock())
    }

    /// One call of the lock.
    fn tell<T>(&mut self, call: impl FnOnce(&mut Lock, &Plain, &mut Effects) -> T) -> T {
        self.effects = Effects::default();
        let result = call(&mut self.lock, &self.env, &mut self.effects);
        self.lock.settle(&self.env, &mut self.effects);
        self.effects.woken.drain(..).for_each(TaskWaker::wake);
        result
    }

    fn enter(&mut self, request: &ResolvedRequest) -> Entered {
        let entered = self.tell(|lock, env, out| lock.enter(request, env, env.now(), out));
        if let Entered::First { id, .. } = entered {
            self.entrants.push(id);
        }
        entered
    }

    /// A task comes, and need not wait.
    fn enter_first(&mut self, request: &ResolvedRequest) -> u64 {
        match self.enter(request) {
            Entered::First { id, .. } => id,
            other => panic!("{other:?}"),
        }
    }

    /// The manager is shut down.
    fn close(&mut self, is_refused: impl Fn(&Waiter) -> bool) {
        self.tell(|lock, _, _| lock.close(is_refused)).into_iter().for_each(TaskWaker::wake);
    }

    /// A task comes, and waits.
    fn wait(&mut self, request: &ResolvedRequest) -> u64 {
        let Entered::Waits(id) = self.enter(request) else { panic!("it need not wait") };
        self.tell(|lock, _, _| lock.wait(id, request));
        assert!(matches!(self.step(id, request), Step::Wait(_)));
        id
    }

    /// The task is polled.
    fn step(&mut self, id: u64, request: &ResolvedRequest) -> Step {
        let attempt = Attempt::new(request, Duration::from_secs(1), || self.now());
        let is_entrant = self.entrants.extract_if(.., |other| *other == id).next().is_some();
        let waker = TaskWaker::from(Arc::new(Task(id, Arc::clone(&self.woken))));
        self.tell(|lock, env, out| {
            if is_entrant {
                lock.begin();
            }
            let step = lock.poll(id, request, &attempt, env, env.now(), out);
            if matches!(step, Step::Wait(_)) {
                lock.register(id, waker, out);
            }
            step
        })
    }

    /// The ask that the task sends next.
    fn ask(&mut self, id: u64, request: &ResolvedRequest) -> Ask {
        match self.step(id, request) {
            Step::Claim(ask) | Step::Ask(ask) => ask,
            other => panic!("{other:?}"),
        }
    }

    /// Whether a task here may have what the answer grants.
    fn answer(&mut self, ask: &Ask, answer: Answer) -> bool {
        self.tell(|lock, env, out| lock.on_answer(ask, answer, env, out))
    }

    fn grant(&mut self, ask: &Ask) -> bool {
        let until = Deadline::new(self.now(), CLAIM);
        self.answer(ask, Answer::Granted(Grant { until, contended: false, fence: None }))
    }

    fn refuse(&mut self, ask: &Ask) -> bool {
        self.answer(ask, Answer::Busy(busy("x")))
    }

    /// The task is polled. Whether it has its hold then.
    fn takes(&mut self, id: u64, request: &ResolvedRequest) -> bool {
        matches!(self.step(id, request), Step::Hold(_))
    }

    /// A task comes, asks, and holds the lock.
    fn hold(&mut self, request: &ResolvedRequest) -> u64 {
        let id = self.enter_first(request);
        let ask = self.ask(id, request);
        assert!(self.grant(&ask));
        assert!(self.takes(id, request));
        id
    }

    /// The hold ends. Of readers, the part `member`.
    fn end_part(&mut self, id: u64, member: u64, waits: bool) -> Ending {
        let user = User { id, member, has_body: false, waits };
        self.tell(|lock, env, out| lock.end(user, env, env.now(), out).ending)
    }

    fn end(&mut self, id: u64) -> Ending {
        self.end_part(id, 0, true)
    }

    /// The task gives up.
    fn leave(&mut self, id: u64) {
        let is_entrant = self.entrants.extract_if(.., |other| *other == id).next().is_some();
        self.tell(|lock, _, out| {
            if is_entrant {
                lock.begin();
            }
            lock.leave(id, out);
        });
    }

    /// The keeper looks. What it has to do first.
    fn look(&mut self, trigger: Trigger) -> Option<Action> {
        let round = Round { deadline: Deadline::new(self.now(), CLAIM), usual_answer: Duration::ZERO };
        let mut actions = Vec::new();
        self.tell(|lock, env, out| lock.look(trigger, &round, env, &mut actions, out));
        actions.into_iter().next()
    }

    /// The keeper's ticks for so long. Returns whether it has given back what lay free.
    fn tick_for(&mut self, span: Duration) -> bool {
        let mut is_released = false;
        let mut left = span;
        while !left.is_zero() {
            let tick = TICK.min(left);
            self.let_pass(tick);
            left -= tick;
            self.look(Trigger::Tick);
            is_released |= !self.effects.withdrawals.is_empty() || !self.effects.releases.is_empty();
        }
        is_released
    }

    /// In how long the keeper looks.
    fn looks_in(&self) -> Option<Duration> {
        let at = self.lock.leases().find_map(|lease| lease.upkeep.look_at.as_deref())?;
        Some(at.remaining_at(self.now()))
    }

    /// The store pushes a grant of the token.
    fn push(&mut self, token: &Token) -> bool {
        let pushed = Pushed {
            token: token.clone(),
            claim: CLAIM,
            store_micros: 1,
            contended: false,
            node: None,
            unconfirmed: false,
        };
        self.tell(|lock, _, _| lock.on_grant(&pushed))
    }

    /// The hold is lost.
    fn lose(&mut self) {
        let lost = self.tell(|lock, env, out| lock.revoke(None, LossReason::NotKnown, env, out));
        assert!(!lost.is_empty());
    }

    /// The store answers a renewal that was sent at `sent`, or does not.
    fn renewed(&mut self, renewal: &Renewal, sent: Moment, outcome: Option<Renewed>) -> Option<Action> {
        self.tell(|lock, env, out| lock.on_renewal(renewal, sent, outcome, env, out))
    }

    fn until(&self, span: Duration) -> Renewed {
        Renewed::Until(Deadline::new(self.now(), span))
    }

    /// Another process waits.
    fn contend(&mut self) {
        self.tell(|lock, env, _| lock.on_contention(env));
    }

    fn token(&mut self) -> Token {
        self.lock.any_lease().token.clone()
    }

    fn is_unused(&self) -> bool {
        self.lock.counts_if_unused().is_some()
    }
}

fn busy(owner: &str) -> Busy {
    let frees_in = Some(Duration::from_secs(9));
    Busy { owner: Token::foreign(owner), frees_in, endless: false, anchor: None, pause: Duration::ZERO, stands: false }
}
