//! [`Entry`]: from a request to a guard or a held body. A lock that the running task holds already is entered again.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

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
    /// Waits for the lock. A body (`is_body`) enters the hold that an outer body has already; a guard would wait for itself.
    pub(crate) async fn enter(&mut self, is_body: bool) -> Result<Held, LockError> {
        surroundings::check()?;
        // The shutdown waits for an outer body, and so for what is asked for inside of it.
        if scope::is_inside(self.engine.core()) {
            self.request.is_inside = true;
            self.set.iter_mut().for_each(|set| set.requests.iter_mut().for_each(|request| request.is_inside = true));
        }
        let Self { engine, request, .. } = &*self;
        // What most callers don't need is boxed: it takes no room in what they wait for.
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

    /// The innermost body of this task that holds the lock of `request`. An error when its hold can't be entered.
    fn find_outer(&self, request: &ResolvedRequest, is_body: bool) -> Result<Option<Frame>, LockError> {
        let outer = Frame::find(|hold| hold.is_of(self.engine.core(), &request.key));
        let covers = outer.as_ref().is_none_or(|outer| outer.hold().covers(request.share));
        if outer.is_none() || (covers && is_body) {
            return Ok(outer);
        }
        Err(LockError::AlreadyHeld { key: request.key.to_string(), wants_more: !covers })
    }

    /// Enters the hold of an outer body.
    async fn reenter(&self, outer: Frame) -> Result<Held, LockError> {
        let span = WaitSpan::begin(&self.request.key, self.request.prefix());
        let entering = self.borrow(&outer);
        let (mut held, span) = wait_inside(span, &self.request, entering, |_| Some(Path::ReEntry)).await?;
        held.guard.span = span;
        Ok(held)
    }

    /// Borrows the hold of an outer body. Joined calls have it one after another.
    async fn borrow(&self, outer: &Frame) -> Result<Held, LockError> {
        let request = &self.request;
        let give_up = Deadline::after(request.timeout);
        let turn = self.wait_for_siblings(outer, request, give_up).await?;
        let by = Deadline::after(answer_time(give_up.remaining(), self.engine.core().settings().command_timeout));
        let handle = outer.hold().borrow(request.fenced, by).await?;
        handle.confirm_for(request, by).await?;
        // The body starts without another wait. A call that failed, or was dropped, keeps nobody out.
        handle.keep_out(request, Moment::now());
        let guard = LockGuard::with_span(Locked::Borrowed(handle), HoldSpan::default());
        Ok(Held::new(guard, request.body, turn))
    }

    /// The turn among the calls that are joined in an outer body.
    async fn wait_for_siblings(
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
            let (key, holder) = (request.key.to_string(), Some(core.settings().label.clone()));
            let waited = request.timeout;
            let error = LockError::Timeout { key, waited, holder, held_here: true, frees_in: None, rests: false };
            core.note_timeout(request, waited, &error, None);
            error
        })
    }
}

/// Waits inside of `span`, if there is one. Then the hold has a span, too.
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
    Ok((outcome?, HoldSpan::begin(&request.key, request.prefix(), path)))
}

/// Adopts the lock of `ticket`.
pub(crate) async fn adopt(engine: &Engine, request: &ResolvedRequest, ticket: &Token) -> Result<LockGuard, LockError> {
    let span = WaitSpan::begin(&request.key, request.prefix());
    let path = |hold: &Hold| Some(hold.handle().path());
    let (hold, span) = wait_inside(span, request, engine.adopt(request, ticket), path).await?;
    Ok(LockGuard::with_span(Locked::Held(hold), span))
}
