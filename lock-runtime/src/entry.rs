//! [`Entry`]: turns a request into a guard or a held body. A lock that the running task already holds is re-entered.

use crate::clock::{Deadline, Moment};
use crate::engine::Engine;
use crate::guard::Locked;
use crate::held::Held;
use crate::local::Hold;
use crate::lock::{ResolvedRequest, answer_time};
use crate::observe::{HoldSpan, Path, WaitSpan};
use crate::opaque::Opaque;
use crate::scope::Frame;
use crate::token::Token;
use crate::turns::Turn;
use crate::{LockError, LockGuard, scope, surroundings};

mod key_set;

pub(crate) use key_set::KeySet;

/// A request and its manager. The futures that wait borrow the entry: each move of it would make them larger.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) engine: Opaque<Engine>,
    pub(crate) request: ResolvedRequest,
    /// The requests for several keys. `request` is then the first key as given.
    pub(crate) set: Option<Box<KeySet>>,
}

impl Entry {
    /// Waits for the lock. A body (`is_body`) enters the hold of an outer body; a guard would wait for itself.
    pub(crate) async fn enter(&mut self, is_body: bool) -> Result<Held, LockError> {
        surroundings::check()?;
        // A shutdown waits for an outer body, and so for the requests inside of it.
        if scope::is_inside(self.engine.core()) {
            self.request.is_inside = true;
            self.set.iter_mut().for_each(|set| set.requests.iter_mut().for_each(|request| request.is_inside = true));
        }
        let Self { engine, request, .. } = &*self;
        // Rare cases are boxed: they take no space in the future of the common case.
        if let Some(set) = &self.set {
            return Box::pin(self.enter_all(set, is_body)).await;
        }
        if let Some(outer) = self.find_outer(request, is_body)? {
            return Box::pin(self.reenter(outer)).await;
        }
        if let Some(span) = WaitSpan::begin(&request.key, request.prefix()) {
            return Box::pin(self.acquire_inside(span)).await;
        }
        let hold = engine.acquire(request).await?;
        Ok(Held::new(LockGuard::with_span(Locked::Held(hold), HoldSpan::default()), request.body, None))
    }

    async fn acquire_inside(&self, span: WaitSpan) -> Result<Held, LockError> {
        let request = &self.request;
        let path = |hold: &Hold| Some(hold.handle().path());
        let (hold, span) = wait_inside(Some(span), request, self.engine.acquire(request), path).await?;
        Ok(Held::new(LockGuard::with_span(Locked::Held(hold), span), request.body, None))
    }

    /// The innermost body of this task that holds the lock of `request`. Fails when the request can't enter its hold.
    fn find_outer(&self, request: &ResolvedRequest, is_body: bool) -> Result<Option<Frame>, LockError> {
        let outer = Frame::find(|hold| hold.is_of(self.engine.core(), &request.key));
        let covers = outer.as_ref().is_none_or(|outer| outer.hold().covers(request.share));
        if outer.is_none() || (covers && is_body) {
            return Ok(outer);
        }
        Err(LockError::AlreadyHeld { key: request.key.to_string(), wants_more: !covers })
    }

    async fn reenter(&self, outer: Frame) -> Result<Held, LockError> {
        let span = WaitSpan::begin(&self.request.key, self.request.prefix());
        let entering = self.borrow(&outer);
        let (mut held, span) = wait_inside(span, &self.request, entering, |_| Some(Path::ReEntry)).await?;
        held.guard.span = span;
        Ok(held)
    }

    /// Borrows the hold of an outer body. Joined calls take turns.
    async fn borrow(&self, outer: &Frame) -> Result<Held, LockError> {
        let request = &self.request;
        let give_up = Deadline::after(request.timeout);
        let turn = self.wait_for_siblings(outer, request, give_up).await?;
        let by = Deadline::after(answer_time(give_up.remaining(), self.engine.core().settings().command_timeout));
        let handle = outer.hold().borrow(request.fenced, by).await?;
        handle.confirm_for(request, by).await?;
        // Only now, as nothing waits any more before the body: a call that failed, or was dropped, must not keep others out.
        handle.keep_out(request, Moment::now());
        let guard = LockGuard::with_span(Locked::Borrowed(handle), HoldSpan::default());
        Ok(Held::new(guard, request.body, turn))
    }

    /// Waits for this call's turn among those that are joined in an outer body.
    async fn wait_for_siblings(
        &self,
        outer: &Frame,
        request: &ResolvedRequest,
        give_up: Deadline,
    ) -> Result<Option<Turn>, LockError> {
        // Readers inside a reader need not exclude each other.
        if outer.hold().is_of_reader() {
            return Ok(None);
        }
        let turns = outer.turns();
        if let Some(turn) = turns.try_take() {
            return Ok(Some(turn));
        }
        tokio::time::timeout(give_up.remaining(), turns.take()).await.map(Some).map_err(|_| {
            let core = self.engine.core();
            let (key, holder) = (request.key.to_string(), Some(core.settings().label.clone()));
            let (waited, note) = (request.timeout, core.note_here(&request.key));
            let error = LockError::Timeout { key, waited, holder, note, held_here: true, frees_in: None, rests: false };
            core.note_timeout(request, waited, &error, None);
            error
        })
    }
}

/// Waits inside of `span`, if there is one. Then the hold also has a span.
async fn wait_inside<T>(
    span: Option<WaitSpan>,
    request: &ResolvedRequest,
    waiting: impl Future<Output = Result<T, LockError>>,
    path_of: impl Fn(&T) -> Option<Path>,
) -> Result<(T, HoldSpan), LockError> {
    let Some(span) = span else { return Ok((waiting.await?, HoldSpan::default())) };
    let outcome = span.around(waiting).await;
    let path = outcome.as_ref().map(path_of);
    span.end(path);
    let path = path.ok().flatten();
    Ok((outcome?, HoldSpan::begin(&request.key, request.prefix(), request.note(), path)))
}

pub(crate) async fn adopt(engine: &Engine, request: &ResolvedRequest, ticket: &Token) -> Result<LockGuard, LockError> {
    let span = WaitSpan::begin(&request.key, request.prefix());
    let path = |hold: &Hold| Some(hold.handle().path());
    let (hold, span) = wait_inside(span, request, engine.adopt(request, ticket), path).await?;
    Ok(LockGuard::with_span(Locked::Held(hold), span))
}
