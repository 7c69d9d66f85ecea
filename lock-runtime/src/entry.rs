//! [`Entry`]: from a request to a guard or a held body. A lock that the running task holds already is entered again.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use crate::clock::{Deadline, Moment};
use crate::engine::Engine;
use crate::held::Held;
use crate::local::Hold;
use crate::lock::{ResolvedRequest, answer_time};
use crate::observe::Path;
use crate::observe::spans::{HoldSpan, WaitSpan};
use crate::opaque::Opaque;
use crate::scope::Frame;
use crate::token::Token;
use crate::{LockError, LockGuard, scope, surroundings};

mod key_set;

pub(crate) use key_set::KeySet;

/// A request and its manager. The futures that wait borrow the entry: each move of it would take room in all these
/// futures.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) engine: Opaque<Engine>,
    pub(crate) request: ResolvedRequest,
    /// The requests for several keys. Then `request` is the first that was given.
    pub(crate) set: Option<Box<KeySet>>,
}

impl Entry {
    pub(crate) async fn acquire(&mut self) -> Result<LockGuard, LockError> {
        surroundings::check()?;
        self.look_around();
        let Self { engine, request, .. } = &*self;
        if let Some(set) = &self.set {
            return Box::pin(self.acquire_all(set)).await;
        }
        if let Some(frame) = self.frame_of(request) {
            return Err(already_held(request, !frame.hold().covers(request.share)));
        }
        if let Some(span) = self.wait_span() {
            return Box::pin(self.acquire_inside(span)).await;
        }
        engine.acquire(request).await.map(LockGuard::owning)
    }

    pub(crate) async fn enter(&mut self) -> Result<Held, LockError> {
        surroundings::check()?;
        self.look_around();
        let Self { engine, request, .. } = &*self;
        if let Some(set) = &self.set {
            return Box::pin(self.enter_all(set)).await;
        }
        if let Some(frame) = self.frame_of(request) {
            if !frame.hold().covers(request.share) {
                return Err(already_held(request, true));
            }
            // Boxed: most calls never get here, and need no room for it.
            return Box::pin(self.reenter(frame)).await;
        }
        if let Some(span) = self.wait_span() {
            let guard = Box::pin(self.acquire_inside(span)).await?;
            return Ok(Held::new(guard, request.body, None));
        }
        Ok(Held::new(LockGuard::owning(engine.acquire(request).await?), request.body, None))
    }

    /// Finds out whether the lock is asked for inside of a body: then the shutdown waits for both.
    fn look_around(&mut self) {
        if scope::is_inside(self.engine.core()) {
            self.request.is_inside = true;
            self.set.iter_mut().for_each(|set| set.note_inside());
        }
    }

    /// The innermost body of this task that holds the lock of `request` already.
    fn frame_of(&self, request: &ResolvedRequest) -> Option<Frame> {
        Frame::find(|hold| hold.is_of(self.engine.core(), &request.key))
    }

    /// The span of the wait, when somebody listens.
    fn wait_span(&self) -> Option<WaitSpan> {
        WaitSpan::begin(&self.request.key, self.request.prefix())
    }

    /// Waits for the lock inside of `span`. The guard has a span of its own.
    ///
    /// Its caller boxes it: most waiters have no span, and need no room for it.
    async fn acquire_inside(&self, span: WaitSpan) -> Result<LockGuard, LockError> {
        acquire_inside(span, &self.request, self.engine.acquire(&self.request)).await
    }

    /// Enters the hold of an outer body, inside of a span when somebody listens.
    async fn reenter(&self, outer: Frame) -> Result<Held, LockError> {
        let Some(span) = self.wait_span() else { return self.enter_again(outer).await };
        let outcome = span.around(self.enter_again(outer)).await;
        span.end(outcome.as_ref().map(|_| Some(Path::ReEntry)));
        let mut held = outcome?;
        held.enter_span(HoldSpan::begin(&self.request.key, self.request.prefix(), Some(Path::ReEntry)));
        Ok(held)
    }

    /// Enters the hold of an outer body. Joined calls enter it one after another.
    async fn enter_again(&self, outer: Frame) -> Result<Held, LockError> {
        let request = &self.request;
        let give_up = Deadline::after(request.timeout);
        let turn = self.inner_turn(&outer, request, give_up).await?;
        let by = Deadline::after(answer_time(give_up.remaining(), self.engine.core().settings().command_timeout));
        let handle = outer.hold().borrow(request.fenced, by).await?;
        handle.confirm_for(request, by).await?;
        // The body starts without another wait. A call that failed, or was dropped, keeps nobody out.
        handle.keep_out(request, Moment::now());
        Ok(Held::new(LockGuard::borrowing(handle), request.body, turn))
    }

    /// The turn among the calls that are joined in an outer body.
    async fn inner_turn(
        &self,
        outer: &Frame,
        request: &ResolvedRequest,
        give_up: Deadline,
    ) -> Result<Option<OwnedMutexGuard<()>>, LockError> {
        // Readers inside a reader need not exclude each other.
        if outer.hold().is_of_reader() {
            return Ok(None);
        }
        let inner = outer.inner();
        if let Ok(turn) = Arc::clone(&inner).try_lock_owned() {
            return Ok(Some(turn));
        }
        tokio::time::timeout(give_up.remaining(), inner.lock_owned()).await.map(Some).map_err(|_| {
            let core = self.engine.core();
            let error = behind_itself(request, &core.settings().label);
            core.note_timeout(request, request.timeout, &error, None);
            error
        })
    }
}

/// The error of a task that would wait for itself.
fn already_held(request: &ResolvedRequest, wants_more: bool) -> LockError {
    LockError::AlreadyHeld { key: request.key.to_string(), wants_more }
}

/// The error of a nested call when a joined sibling kept the lock that both calls had entered.
fn behind_itself(request: &ResolvedRequest, label: &str) -> LockError {
    let (key, holder) = (request.key.to_string(), Some(label.to_owned()));
    LockError::Timeout { key, waited: request.timeout, holder, held_here: true, frees_in: None, rests: false }
}

/// Waits for the hold inside of `span`. The guard has a span of its own.
async fn acquire_inside(
    span: WaitSpan,
    request: &ResolvedRequest,
    acquiring: impl Future<Output = Result<Hold, LockError>>,
) -> Result<LockGuard, LockError> {
    let outcome = span.around(acquiring).await;
    let path = outcome.as_ref().map(|hold| Some(hold.handle().path()));
    span.end(path);
    let path = path.ok().flatten();
    let mut guard = LockGuard::owning(outcome?);
    guard.enter_span(HoldSpan::begin(&request.key, request.prefix(), path));
    Ok(guard)
}

/// Adopts the lock of `ticket`, inside of spans when somebody listens.
pub(crate) async fn adopt(engine: &Engine, request: &ResolvedRequest, ticket: &Token) -> Result<LockGuard, LockError> {
    let adopting = engine.adopt(request, ticket);
    match WaitSpan::begin(&request.key, request.prefix()) {
        Some(span) => acquire_inside(span, request, adopting).await,
        None => adopting.await.map(LockGuard::owning),
    }
}
