//! What the expansion of `#[cache_lock]` calls. Not for direct use; no promise of stability.

use std::sync::Arc;
use std::time::Duration;

pub use ::core;
pub use ::core::option::Option::{None, Some};
pub use ::core::result::Result::{Err, Ok};
pub use ::std;

mod constant;

pub use constant::{check_expire, check_expire_ms, check_expire_s, check_prefix};

use crate::clock::Deadline;
use crate::key;
use crate::local::{Hold, Protected, Terms, answer_time};
use crate::observe;
use crate::scope::{self, Frame};
use crate::{FencingToken, InvalidKey, LockError, LockGuard, LockKey, LockManager, OnLost};

/// A lock that is asked for, before it is known of which manager.
#[derive(Debug)]
pub struct Spec {
    name: Result<String, LockError>,
    timeout: Option<Duration>,
    expire: Option<Duration>,
    renew: Option<bool>,
    fenced: bool,
    on_lost: OnLost,
}

impl Spec {
    pub fn new<K: LockKey + ?Sized>(prefix: &str, key: &K) -> Self {
        Self {
            name: key::name(prefix, key),
            timeout: None,
            expire: None,
            renew: None,
            fenced: false,
            on_lost: OnLost::Cancel,
        }
    }

    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    #[must_use]
    pub fn expire(mut self, expire: Duration) -> Self {
        self.expire = Some(expire);
        self
    }

    /// `timeout_ms = EXPR`.
    #[must_use]
    pub fn timeout_ms(self, amount: impl Amount) -> Self {
        self.amount("timeout_ms", amount, Duration::from_millis, Self::timeout)
    }

    /// `timeout_s = EXPR`.
    #[must_use]
    pub fn timeout_s(self, amount: impl Amount) -> Self {
        self.amount("timeout_s", amount, Duration::from_secs, Self::timeout)
    }

    /// `expire_ms = EXPR`.
    #[must_use]
    pub fn expire_ms(self, amount: impl Amount) -> Self {
        self.amount("expire_ms", amount, Duration::from_millis, Self::expire)
    }

    /// `expire_s = EXPR`.
    #[must_use]
    pub fn expire_s(self, amount: impl Amount) -> Self {
        self.amount("expire_s", amount, Duration::from_secs, Self::expire)
    }

    fn amount(
        mut self,
        setting: &'static str,
        amount: impl Amount,
        unit: fn(u64) -> Duration,
        set: fn(Self, Duration) -> Self,
    ) -> Self {
        if let Some(amount) = amount.amount() {
            return set(self, unit(amount));
        }
        let reason = "it is negative or larger than a u64 holds".to_owned();
        self.name = self.name.and(Err(LockError::InvalidSetting { setting, reason }));
        self
    }

    #[must_use]
    pub fn renew(mut self, renew: bool) -> Self {
        self.renew = Some(renew);
        self
    }

    #[must_use]
    pub fn fenced(mut self, fenced: bool) -> Self {
        self.fenced = fenced;
        self
    }

    #[must_use]
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.on_lost = on_lost;
        self
    }

    /// The terms of this request under `manager`'s namespace and defaults.
    fn terms(self, manager: &LockManager, body: bool) -> Result<(Terms, OnLost), LockError> {
        let settings = manager.engine().settings();
        let terms = Terms {
            key: settings.full_name(self.name?)?,
            timeout: self.timeout.unwrap_or(settings.default_timeout),
            expire: self.expire.unwrap_or(settings.default_expire),
            renew: self.renew.unwrap_or(true),
            fenced: self.fenced,
            body: body && self.on_lost == OnLost::Cancel,
        };
        settings.check_lease("expire", terms.expire)?;
        Ok((terms, self.on_lost))
    }

    /// The request that this makes of `manager`, or of the current one.
    pub(crate) fn request(self, manager: Option<LockManager>, body: bool) -> Result<Request, LockError> {
        let manager = manager.or_else(scope::current).ok_or(LockError::NotInstalled)?;
        let (terms, on_lost) = self.terms(&manager, body)?;
        Ok(Request { manager, terms, on_lost })
    }

    /// Waits for the lock, or enters it when the running task holds it; `None` means the current manager.
    ///
    /// # Errors
    ///
    /// As [`LockRequest::acquire`](crate::LockRequest::acquire), and [`LockError::NotInstalled`].
    pub async fn enter(self, manager: Option<LockManager>) -> Result<Held, LockError> {
        self.request(manager, true)?.enter().await
    }
}

/// What is asked of which manager. The futures that wait borrow it: each move of it would be room in every one of them.
#[derive(Debug)]
pub(crate) struct Request {
    manager: LockManager,
    terms: Terms,
    on_lost: OnLost,
}

impl Request {
    pub(crate) async fn acquire(&self) -> Result<LockGuard, LockError> {
        let Self { manager, terms, .. } = self;
        let engine = manager.engine();
        if Frame::find(|hold| hold.is_of(engine, &terms.key)).is_some() {
            return Err(LockError::AlreadyHeld { key: terms.key.to_string() });
        }
        engine.acquire(terms).await.map(LockGuard::owning)
    }

    pub(crate) async fn enter(&self) -> Result<Held, LockError> {
        let engine = self.manager.engine();
        if let Some(frame) = Frame::find(|hold| hold.is_of(engine, &self.terms.key)) {
            // Boxed, for the sake of the many that don't get here.
            return Box::pin(self.reenter(frame)).await;
        }
        let guard = LockGuard::owning(engine.acquire(&self.terms).await?);
        Ok(Held { guard, on_lost: self.on_lost, _turn: None })
    }

    /// Enters the hold of an outer body, one joined call after another.
    async fn reenter(&self, outer: Arc<Frame>) -> Result<Held, LockError> {
        let Self { manager, terms, on_lost } = self;
        let give_up = Deadline::after(terms.timeout);
        let inner = outer.inner();
        let turn = match Arc::clone(&inner).try_lock_owned() {
            Ok(turn) => turn,
            Err(_) => tokio::time::timeout(give_up.remaining(), inner.lock_owned())
                .await
                .map_err(|_| manager.engine().timed_out_behind_itself(terms))?,
        };
        let by = Deadline::after(answer_time(give_up.remaining(), manager.engine().settings().command_timeout));
        let view = outer.hold().borrowed(terms.fenced, by).await?;
        Ok(Held { guard: LockGuard::borrowing(view), on_lost: *on_lost, _turn: Some(turn) })
    }
}

/// A lock that is held, around a body.
#[derive(Debug)]
pub struct Held {
    guard: LockGuard,
    on_lost: OnLost,
    /// Among joined calls that entered the same outer hold.
    _turn: Option<tokio::sync::OwnedMutexGuard<()>>,
}

impl Held {
    pub fn guard(&self) -> &LockGuard {
        &self.guard
    }

    /// The token drawn for a request with `fenced(true)`.
    ///
    /// # Panics
    ///
    /// Never in an expansion: `fenced = NAME` both asks for the token and reads it.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the expansion that reads the token has asked for it")]
    pub fn fencing_token(&self) -> FencingToken {
        self.guard.fencing_token().expect("asked for with `fenced(true)`")
    }

    /// Runs `body`, looking at the deadline before each of its polls. The returned future drops `body` when it is dropped
    /// itself: do that before anybody is told that the lock is free.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] when the hold was lost and the body was dropped for it.
    pub fn protect<F: Future>(&self, body: F) -> impl Future<Output = Result<F::Output, LockError>> {
        let view = self.guard.view();
        let body = Frame::new(view.clone()).around(body);
        Protected::new(view, self.on_lost == OnLost::Cancel, body)
    }

    /// Gives the lock back and says how it went.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] when the hold did not last until now.
    pub async fn finish<T>(self, outcome: Result<T, LockError>) -> Result<T, LockError> {
        let value = outcome?;
        if self.guard.is_borrowed() {
            return if self.guard.is_valid() { Ok(value) } else { Err(self.guard.view().lost_error(true)) };
        }
        match self.guard.release().await {
            Err(error) if error.is_lost() => Err(error),
            Err(error) => {
                // The work was done under the lock: that is what its caller hears.
                observe::unreleased(&error);
                Ok(value)
            }
            Ok(()) => Ok(value),
        }
    }
}

/// Calls the closure of `on_fail = |err| …`; being an argument tells the closure the type of `err`.
pub fn on_fail<T>(error: LockError, on_fail: impl FnOnce(LockError) -> T) -> T {
    on_fail(error)
}

/// Runs the part of a fn that comes before the future that it returns. `T` tells that future what it is to yield.
pub fn start<T, F: Future<Output = T>>(start: impl FnOnce() -> F) -> F {
    start()
}

/// Any integer that a `…_ms` or `…_s` option may be given.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a number of milliseconds or seconds",
    label = "`…_ms` and `…_s` take an integer",
    note = "for a `Duration` write `timeout = …` or `expire = …`"
)]
pub trait Amount {
    fn amount(self) -> Option<u64>;
}

macro_rules! amounts {
    ($($integer:ty),*) => {$(
        impl Amount for $integer {
            fn amount(self) -> Option<u64> {
                u64::try_from(self).ok()
            }
        }
    )*};
}

amounts!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);

/// A return type that can carry a failure of the lock.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't carry a failure of the lock",
    label = "this fn has to return `Result<_, E>` with `E: From<LockError>`",
    note = "write `impl From<LockError> for` its error type, or say what to return with `on_fail = VALUE`"
)]
pub trait FromLockError {
    fn from_lock_error(error: LockError) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T, E: From<LockError>> FromLockError for Result<T, E> {
    fn from_lock_error(error: LockError) -> Self {
        Err(E::from(error))
    }
}

/// What `manager = EXPR` may name: a manager, or a reference or smart pointer to one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `LockManager`",
    label = "`manager = …` takes a `LockManager`, or a reference or `Arc` to one"
)]
pub trait ManagerRef {
    fn manager(&self) -> LockManager;
}

impl ManagerRef for LockManager {
    fn manager(&self) -> LockManager {
        self.clone()
    }
}

impl<M: ManagerRef + ?Sized> ManagerRef for &M {
    fn manager(&self) -> LockManager {
        M::manager(self)
    }
}

impl<M: ManagerRef + ?Sized> ManagerRef for Arc<M> {
    fn manager(&self) -> LockManager {
        M::manager(self)
    }
}

impl<M: ManagerRef + ?Sized> ManagerRef for std::rc::Rc<M> {
    fn manager(&self) -> LockManager {
        M::manager(self)
    }
}

impl<M: ManagerRef + ?Sized> ManagerRef for Box<M> {
    fn manager(&self) -> LockManager {
        M::manager(self)
    }
}

/// What the derived `write_parts` returns.
pub type KeyResult = Result<(), InvalidKey>;

#[expect(dead_code, reason = "the compiler proves that a hold can move between threads")]
fn holds_are_send(hold: Hold) -> impl Send {
    hold
}
