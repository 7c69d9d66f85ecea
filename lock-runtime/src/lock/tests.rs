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
use crate::protocol::{Answer, Ask, Busy, Grant, Pushed, Release, Renewal, Renewed};
use crate::share::Share;
use crate::timing::{ASK_INTERVAL, CLAIM, STREAK_TIME, TURN_PATIENCE, UNCONFIRMED_FOR, WAITERS_KNOWN_FOR};
use crate::token::Token;

mod alarm;
mod answer;
mod close;
mod come;
mod end;
mod enter;
mod give_up;
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
    /// The tasks that were called.
    called: Arc<Mutex<Vec<u64>>>,
    /// What the last step asked for besides.
    effects: Effects,
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
        Self { lock: Lock::default(), env: Plain::still(share), called: Arc::default(), effects: Effects::default() }
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

    /// Who was called since the last time.
    fn called(&self) -> Vec<u64> {
        std::mem::take(&mut *self.called.lock())
    }

    /// One step of the lock.
    fn tell<T>(&mut self, step: impl FnOnce(&mut Lock, &Plain, &mut Effects) -> T) -> T {
        self.effects = Effects::default();
        let result = step(&mut self.lock, &self.env, &mut self.effects);
        self.effects.calls.drain(..).for_each(TaskWaker::wake);
        result
    }

    fn enter(&mut self, request: &ResolvedRequest) -> Option<Entered> {
        self.lock.enter(request, self.now())
    }

    /// A task comes, and need not wait.
    fn enter_first(&mut self, request: &ResolvedRequest) -> u64 {
        match self.enter(request) {
            Some(Entered::Turn { id, .. }) => id,
            other => panic!("{other:?}"),
        }
    }

    /// The manager is shut down.
    fn close(&mut self, is_refused: impl Fn(&Waiter) -> bool) {
        self.lock.close(is_refused).into_iter().for_each(TaskWaker::wake);
    }

    /// A task comes, and waits.
    fn wait(&mut self, request: &ResolvedRequest) -> u64 {
        assert!(self.enter(request).is_none());
        let id = self.lock.wait(Waiter::new(request));
        assert!(self.lock.poll(id, TaskWaker::from(Arc::new(Task(id, Arc::clone(&self.called))))).is_ok());
        id
    }

    fn step(&mut self, id: u64, request: &ResolvedRequest) -> Step {
        let attempt = Attempt::new(request, Duration::from_secs(1), || self.now());
        self.tell(|lock, env, out| lock.step(id, request, &attempt, env, env.now(), out))
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

    /// The task starts its hold.
    fn start(&mut self, id: u64, request: &ResolvedRequest) -> bool {
        self.tell(|lock, env, out| lock.start(id, request, env.now(), out).is_some())
    }

    /// A task comes, asks, and holds the lock.
    fn hold(&mut self, request: &ResolvedRequest) -> u64 {
        let id = self.enter_first(request);
        let ask = self.ask(id, request);
        assert!(self.grant(&ask));
        assert!(matches!(self.step(id, request), Step::Hold(_)));
        id
    }

    /// The hold ends.
    fn end(&mut self, id: u64) -> Ending {
        self.tell(|lock, env, out| lock.end(id, false, env, env.now(), out).ending)
    }

    /// The turn ends.
    fn pass(&mut self, id: u64) -> Passed {
        let passed = self.lock.pass(id, PassedBy::Task, &self.env);
        if let Passed::To(next) = &passed {
            next.wake_by_ref();
        }
        passed
    }

    /// The keeper looks.
    fn look(&mut self, trigger: Trigger) -> Action {
        let round = Round { deadline: Deadline::new(self.now(), CLAIM), usual_answer: Duration::ZERO };
        self.tell(|lock, env, out| lock.look(trigger, &round, env, out).0)
    }

    /// The keeper looks until the task with the turn is passed over.
    fn pass_over(&mut self) -> Option<Release> {
        while !matches!(self.look(Trigger::Tick), Action::PassOver) {
            self.let_pass(TURN_PATIENCE / 5);
        }
        let (id, release) = self.tell(|lock, env, out| lock.note_late_turn(env, out)).expect("its task did not come");
        if let Passed::To(next) = self.lock.pass(id, PassedBy::Keeper, &self.env) {
            next.wake();
        }
        release
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
        self.tell(|lock, _, out| lock.on_grant(&pushed, out))
    }

    /// A task that was passed over is polled at last.
    fn come_late(&mut self, id: u64, request: &ResolvedRequest) -> Rejoined {
        self.tell(|lock, env, out| lock.rejoin(id, request, env, out))
    }

    /// The hold is lost.
    fn lose(&mut self) -> Revoked {
        self.tell(|lock, env, out| lock.revoke(None, LossReason::NotKnown, env, out)).expect("a lease")
    }

    /// The store answers a renewal that was sent at `sent`, or does not.
    fn renewed(&mut self, renewal: &Renewal, sent: Moment, outcome: Option<Renewed>) -> Action {
        self.tell(|lock, env, out| lock.on_renewal(renewal, sent, outcome, env, out))
    }

    fn until(&self, span: Duration) -> Renewed {
        Renewed::Until(Deadline::new(self.now(), span))
    }

    /// Another process waits.
    fn contend(&mut self) {
        self.tell(|lock, env, out| lock.on_contention(env, out));
    }

    fn token(&self) -> Token {
        self.lock.lease().expect("a lease").token.clone()
    }
}

fn busy(owner: &str) -> Busy {
    let frees_in = Some(Duration::from_secs(9));
    Busy { owner: Token::foreign(owner), frees_in, endless: false, anchor: None, pause: Duration::ZERO, stands: false }
}
