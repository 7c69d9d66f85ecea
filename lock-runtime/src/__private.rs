//! The fns and types that the expansion of `#[cache_lock]` calls. They are not for direct use, and may change in any
//! release.

use std::sync::Arc;
use std::time::Duration;

pub use ::core;
pub use ::core::option::Option::{None, Some};
pub use ::core::result::Result::{Err, Ok};
pub use ::std;

pub use crate::blocking::Blocking;
pub use crate::held::Held;
pub use crate::options::{Amount, LockOptions};

use crate::settings::{problem_of_lease, problem_of_linger, problem_of_max_hold};
use crate::share::Share;
use crate::{InvalidKey, LockError, LockManager, NameParts};

/// Calls the closure of `on_fail = |err| …`. The closure is an argument here, so the compiler knows the type of `err`.
pub fn on_fail<T>(error: LockError, on_fail: impl FnOnce(LockError) -> T) -> T {
    on_fail(error)
}

/// Runs the part of a fn before the future that the fn returns. `T` tells the compiler what that future yields.
pub fn start<T, F: Future<Output = T>>(start: impl FnOnce() -> F) -> F {
    start()
}

/// A return type that can carry a failure of the lock.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't carry a failure of the lock",
    label = "this fn has to return `Result<_, E>` with `E: From<LockError>`",
    note = "write `impl From<LockError> for` its error type, or say what to return with `on_fail = VALUE`"
)]
pub trait FromLockError {
    /// Makes the return value of a fn whose lock failed.
    fn from_lock_error(error: LockError) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T, E: From<LockError>> FromLockError for Result<T, E> {
    fn from_lock_error(error: LockError) -> Self {
        Err(E::from(error))
    }
}

/// A manager, or a reference or smart pointer to a manager: what `manager = EXPR` may name.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `LockManager`",
    label = "`manager = …` takes a `LockManager`, or a reference or `Arc` to one"
)]
pub trait ManagerRef {
    /// A clone of the manager.
    fn manager(&self) -> LockManager;
}

impl ManagerRef for LockManager {
    fn manager(&self) -> LockManager {
        self.clone()
    }
}

// Not a macro: a user's compile error shows these lines.
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

/// Waits for the lock, or enters it when the running task already holds it. `None` means the current manager.
///
/// # Errors
///
/// As [`LockRequest::run`](crate::LockRequest::run), and [`LockError::NotInstalled`].
pub fn enter(options: LockOptions, manager: Option<LockManager>) -> impl Future<Output = Result<Held, LockError>> {
    options.enter(manager.map(|manager| manager.engine))
}

/// Like [`enter`], on the thread of a fn that is not async.
///
/// # Errors
///
/// As [`LockRequest::run_blocking`](crate::LockRequest::run_blocking), and [`LockError::NotInstalled`].
pub fn enter_blocking(options: LockOptions, manager: Option<LockManager>) -> Result<Blocking, LockError> {
    Blocking::enter(&mut options.entry(manager.map(|manager| manager.engine), true)?, true)
}

/// The return type of a fn that is not async. It must not be a future under another name: the future would run without the lock.
#[derive(Debug)]
pub struct Returned<T>(std::marker::PhantomData<T>);

impl<T> Returned<T> {
    /// Names the type.
    #[must_use]
    pub const fn of() -> Self {
        Self(std::marker::PhantomData)
    }
}

impl<T: Future> Returned<T> {
    /// A method of the type takes precedence over a trait's, but it exists only when `T` is a future.
    pub fn check(self)
    where
        T: RunsUnderTheLock,
    {
    }
}

impl<T: Future, E> Returned<Result<T, E>> {
    /// Like `check`, for a future in a `Result`.
    pub fn check_within(self)
    where
        T: RunsUnderTheLock,
    {
    }
}

/// Every other return type.
pub trait NoFuture: Sized {
    /// Nothing to refuse.
    fn check(self) {}
    /// Nothing to refuse.
    fn check_within(self) {}
}

impl<T> NoFuture for Returned<T> {}

/// No type implements it, so no fn can return a future under another name.
#[diagnostic::on_unimplemented(
    message = "this fn returns a future, which would run without the lock",
    label = "`{Self}` is a future",
    note = "write `async fn`, or return `impl Future<Output = T>` or `Pin<Box<dyn Future<Output = T>>>` in these words"
)]
pub trait RunsUnderTheLock {}

/// The return type of the derived `write_parts`.
pub type KeyResult = Result<(), InvalidKey>;

/// The implementation that a proxy had in an `Arc` or `Rc`, if this is its last handle.
///
/// # Panics
///
/// When there is another handle.
#[track_caller]
#[expect(clippy::panic, reason = "the docs of `into_inner` say when")]
pub fn unshared<T, P>(inner: Result<T, P>) -> T {
    inner.unwrap_or_else(|_| panic!("a method that took the implementation as `self: Arc<Self>` has it still"))
}

/// Writes a field marked `#[lock_key(display)]`.
///
/// # Errors
///
/// [`InvalidKey`] when the text is empty, or when the value can't be written as a text.
pub fn displayed<T: std::fmt::Display + ?Sized>(value: &T, name: &mut NameParts) -> KeyResult {
    name.displayed(&value)
}

// Options that are constants are checked by the compiler, other values when they are used.

/// Checks `prefix = PREFIX`. Other mistakes in a prefix are found at run time: a `const fn` sees only bytes.
///
/// # Panics
///
/// At compile time, with the mistake.
#[track_caller]
pub const fn check_prefix(prefix: &str) {
    let mut rest = prefix.as_bytes();
    assert!(!rest.is_empty(), "the prefix is empty: name what is locked, or leave `prefix` out to use the fn's path");
    while let [first, others @ ..] = rest {
        assert!(
            !matches!(first, b'{' | b'}'),
            "the prefix contains a brace, which would move the lock to another cluster slot"
        );
        let is_blank = *first <= b' ' || *first == 0x7f;
        assert!(!is_blank, "the prefix contains a blank or a control character");
        rest = others;
    }
}

/// The checks of a time as a `Duration`, in milliseconds and in seconds.
macro_rules! checks {
    ($($any:ident, $ms:ident, $s:ident: $problem:ident, $negative:literal;)*) => {$(
        /// Checks a constant `Duration`.
        ///
        /// # Panics
        ///
        /// At compile time, with the mistake.
        #[track_caller]
        pub const fn $any(time: Duration) {
            refuse($problem(time.as_nanos()));
        }

        /// Checks a constant number of milliseconds.
        ///
        /// # Panics
        ///
        /// At compile time, with the mistake.
        #[track_caller]
        pub const fn $ms(millis: i128) {
            assert!(millis >= 0, $negative);
            refuse($problem(millis.unsigned_abs().saturating_mul(1_000_000)));
        }

        /// Checks a constant number of seconds.
        ///
        /// # Panics
        ///
        /// At compile time, with the mistake.
        #[track_caller]
        pub const fn $s(seconds: i128) {
            $ms(seconds.saturating_mul(1000));
        }
    )*};
}

checks! {
    check_expire, check_expire_ms, check_expire_s: problem_of_lease, "a lease can't be negative";
    check_max_hold, check_max_hold_ms, check_max_hold_s: problem_of_max_hold, "a hold can't be negative";
    check_linger, check_linger_ms, check_linger_s: problem_of_linger, "a linger time can't be negative";
}

/// Checks a constant number of permits.
///
/// # Panics
///
/// At compile time, with the mistake.
#[track_caller]
pub const fn check_permits(permits: i128) {
    let is_possible = permits > 0 && permits.unsigned_abs() <= Share::MOST_PERMITS as u128;
    assert!(is_possible, "the number of permits is zero, negative, or more than 4,294,967,294: write at least 1");
}

#[track_caller]
#[expect(clippy::panic, reason = "the compiler shows it")]
const fn refuse(problem: Option<&str>) {
    if let Some(problem) = problem {
        panic!("{}", problem);
    }
}
