//! How a lock reacts to events, with a file for each event. Everything is a plain value, and time passes only when a test says so.

use std::sync::Arc;
use std::task::{Wake, Waker as TaskWaker};
use std::time::Duration;

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
use plain::Plain;

mod alarm;
mod answer;
mod close;
mod end;
mod enter;
mod give_up;
mod idle;
mod leave;
mod look;
pub(super) mod plain;
mod poll;
mod push;
mod wait;

const LEASE: Duration = Duration::from_secs(30);
const MOMENT: Duration = Duration::from_micros(1);

/// The request of a waiting task.
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

/// Plays a process's tasks, its keeper and the store.
struct Stage {
    lock: Lock,
    env: Plain,
    woken: Arc<Mutex<Vec<u64>>>,
    /// The other effects of the last call.
    effects: Effects,
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

    /// With a store without a queue.
    fn polling() -> Self {
        Self { env: Plain::still(None).polled(), ..Self::new() }
    }

    fn now(&self) -> Moment {
        self.env.now()
    }

    fn let_pass(&self, span: Duration) {
        self.env.let_pass(span);
    }

    /// The tasks woken since the last call.
    fn woken(&self) -> Vec<u64> {
        std::mem::take(&mut *self.woken.lock())
    }

    /// Calls the lock once.
    fn tell<T>(&mut self, call: impl FnOnce(&mut Lock, &Plain, &mut Effects) -> T) -> T {
        self.effects = Effects::default();
        let result = call(&mut self.lock, &self.env, &mut self.effects);
        self.lock.settle(&self.env, &mut self.effects);
        std::mem::take(&mut self.effects.woken).wake();
        result
    }

    fn enter(&mut self, request: &ResolvedRequest) -> Entered {
        let entered = self.tell(|lock, env, out| lock.enter(request, env, env.now(), out));
        if let Entered::First { id, .. } = entered {
            self.entrants.push(id);
        }
        entered
    }

    /// Enters a task that does not have to wait.
    fn enter_first(&mut self, request: &ResolvedRequest) -> u64 {
        match self.enter(request) {
            Entered::First { id, .. } => id,
            other => panic!("{other:?}"),
        }
    }

    /// Shuts the manager down.
    fn close(&mut self, is_refused: impl Fn(&Waiter) -> bool) {
        self.tell(|lock, _, _| lock.close(is_refused)).into_iter().for_each(TaskWaker::wake);
    }

    /// Enters a task that waits.
    fn wait(&mut self, request: &ResolvedRequest) -> u64 {
        let Entered::Waits(id) = self.enter(request) else { panic!("it does not wait") };
        self.tell(|lock, _, _| lock.wait(id, request));
        assert!(matches!(self.step(id, request), Step::Wait(_)));
        id
    }

    fn step(&mut self, id: u64, request: &ResolvedRequest) -> Step {
        let attempt = Attempt::new(request, Duration::from_secs(1), || self.now());
        self.step_of(id, request, &attempt)
    }

    fn step_of(&mut self, id: u64, request: &ResolvedRequest, attempt: &Attempt) -> Step {
        let is_entrant = self.entrants.extract_if(.., |other| *other == id).next().is_some();
        let waker = TaskWaker::from(Arc::new(Task(id, Arc::clone(&self.woken))));
        self.tell(|lock, env, out| {
            if is_entrant {
                lock.on_first_poll();
            }
            let step = lock.poll(id, request, attempt, env, env.now(), out);
            if matches!(step, Step::Wait(_)) {
                lock.register(id, waker, out);
            }
            step
        })
    }

    fn ask(&mut self, id: u64, request: &ResolvedRequest) -> Ask {
        match self.step(id, request) {
            Step::Claim(ask) | Step::Ask(ask) => ask,
            other => panic!("{other:?}"),
        }
    }

    /// Whether a task here may use what the answer grants.
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

    /// Polls the task. Returns whether it now has its hold.
    fn takes(&mut self, id: u64, request: &ResolvedRequest) -> bool {
        matches!(self.step(id, request), Step::Hold(_))
    }

    /// Enters a task, which asks and gets the lock.
    fn hold(&mut self, request: &ResolvedRequest) -> u64 {
        let id = self.enter_first(request);
        let ask = self.ask(id, request);
        assert!(self.grant(&ask));
        assert!(self.takes(id, request));
        id
    }

    /// Ends the hold; for readers, only the part `member`.
    fn end_part(&mut self, id: u64, member: u64, waits: bool) -> Ending {
        let user = User { id, member, has_body: false, waits };
        self.tell(|lock, env, out| lock.end(user, env, env.now(), out).0)
    }

    fn end(&mut self, id: u64) -> Ending {
        self.end_part(id, 0, true)
    }

    fn leave(&mut self, id: u64) {
        let is_entrant = self.entrants.extract_if(.., |other| *other == id).next().is_some();
        self.tell(|lock, _, out| {
            if is_entrant {
                lock.on_first_poll();
            }
            lock.leave(id, out);
        });
    }

    /// Runs the keeper's check. Returns its first action.
    fn look(&mut self, trigger: Trigger) -> Option<Action> {
        let round = Round { deadline: Deadline::new(self.now(), CLAIM), usual_answer: Duration::ZERO };
        let mut actions = Vec::new();
        self.tell(|lock, env, out| lock.look(trigger, &round, env, &mut actions, out));
        actions.into_iter().next()
    }

    /// Ticks the keeper for this long. Returns whether it has released the free lease.
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

    /// How long until the keeper's next check.
    fn looks_in(&self) -> Option<Duration> {
        let at = self.lock.leases().find_map(|lease| lease.upkeep.look_at.as_deref())?;
        Some(at.remaining_at(self.now()))
    }

    /// Pushes a grant for the token.
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

    fn lose(&mut self) {
        let lost = self.tell(|lock, env, out| lock.revoke(None, LossReason::NotKnown, env, out));
        assert!(!lost.is_empty());
    }

    /// Answers a renewal sent at `sent`, or leaves it unanswered.
    fn renewed(&mut self, renewal: &Renewal, sent: Moment, outcome: Option<Renewed>) -> Option<Action> {
        self.tell(|lock, env, out| lock.on_renewal(renewal, sent, outcome, env, out))
    }

    fn until(&self, span: Duration) -> Renewed {
        Renewed::Until(Deadline::new(self.now(), span))
    }

    /// Reports that another process waits.
    fn contend(&mut self) {
        self.tell(|lock, env, out| lock.on_contention(true, env, out));
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
