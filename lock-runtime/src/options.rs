//! [`LockOptions`]: the options of one lock as the user wrote them, before the defaults of a manager are known.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::task::coop::cooperative;

use crate::engine::Engine;
use crate::entry::{Entry, KeySet};
use crate::held::Held;
use crate::key::PrefixPlace;
use crate::lock::{HoldOptions, IfBusy, ResolvedRequest, Terms};
use crate::opaque::Opaque;
use crate::settings::{Settings, problem_of_note};
use crate::share::Share;
use crate::store::{Feature, Store as _};
use crate::{LockError, LockGuard, LockKey, LockTicket, OnBusy, OnLost, entry, key, scope, surroundings};

/// Why `linger` is refused together with other options.
const NOT_USED_AGAIN: &str = "nobody else could use a permit that is kept, and a reader with `renew = false`, `max_hold` or \
    `at_least` has a lease of its own, which no other hold could use again";

/// Why `on_busy = "replace"` is refused together with other options.
const NO_KEYS_REPLACED: &str = "`replace` is for one key: a request for several keys waits for each of them";
const NO_SHARE_REPLACED: &str = "`replace` takes the lock from its holder, and `read` or `permits` have it together: leave one of \
    them out";
/// Why `lock_delay` is refused for a reader.
const READERS_WRITE_NOTHING: &str =
    "a reader has sent no write that could still arrive: leave `lock_delay` or `read` out";

const NO_TRY_REPLACES: &str =
    "`replace` waits until the holder has stopped, and a timeout of zero waits for nobody: write a timeout";

/// The key and the options of one lock, before its manager is known.
#[derive(Clone, Debug)]
pub struct LockOptions {
    /// The name of the lock, or of the first of several locks.
    name: Result<Arc<str>, LockError>,
    /// The names of several locks, in the order in which their keys were given.
    names: Option<Vec<Arc<str>>>,
    /// How long the prefix is, in bytes.
    prefix: u16,
    timeout: Option<Duration>,
    expire: Option<Duration>,
    linger: Option<Duration>,
    renew: Option<bool>,
    hold: HoldOptions,
    lock_delay: Option<Duration>,
    fenced: bool,
    expects_failure: bool,
    share: Option<Share>,
    on_lost: OnLost,
    on_busy: OnBusy,
}

/// The options that take a number where another takes a `Duration`. One option per invocation: for an argument that is not a number, the
/// compiler shows the user the whole invocation.
macro_rules! units {
    ($set:ident: $ms:ident, $s:ident) => {
        units!(@$set $ms from_millis);
        units!(@$set $s from_secs);
    };
    (@$set:ident $name:ident $unit:ident) => {
        #[doc = concat!("The option `", stringify!($name), " = EXPR`.")]
        #[must_use]
        pub fn $name(self, amount: impl Amount) -> Self {
            self.amount(stringify!($name), amount, Duration::$unit, Self::$set)
        }
    };
}

impl LockOptions {
    /// The lock `prefix:key`. Every option has the manager's default.
    pub fn new<K: LockKey + ?Sized>(prefix: &str, key: &K) -> Self {
        Self::named(prefix, key::name(prefix, key))
    }

    fn named(prefix: &str, name: Result<Arc<str>, LockError>) -> Self {
        Self {
            name,
            names: None,
            // A name with a longer prefix is refused.
            prefix: u16::try_from(prefix.len()).unwrap_or(u16::MAX),
            timeout: None,
            expire: None,
            linger: None,
            renew: None,
            hold: HoldOptions::default(),
            lock_delay: None,
            fenced: false,
            expects_failure: false,
            share: None,
            on_lost: OnLost::Cancel,
            on_busy: OnBusy::Wait,
        }
    }

    /// Several locks, all or none: `prefix:key` for each of the `keys`.
    pub fn all<K: LockKey>(prefix: &str, keys: impl IntoIterator<Item = K>) -> Self {
        let names = keys.into_iter().map(|key| key::name(prefix, &key)).collect::<Result<Vec<_>, _>>();
        let name = names
            .as_ref()
            .map_err(LockError::clone)
            .and_then(|names| names.first().cloned().ok_or_else(|| KeySet::no_key(prefix)));
        Self { names: names.ok(), ..Self::named(prefix, name) }
    }

    /// The lock with this whole name, as in Redis.
    pub(crate) fn of_whole_name(name: &str) -> Self {
        Self::named("", key::whole_name(name))
    }

    /// The option `timeout = EXPR`.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The option `expire = EXPR`.
    #[must_use]
    pub fn expire(mut self, expire: Duration) -> Self {
        self.expire = Some(expire);
        self
    }

    /// The option `linger = EXPR`.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = Some(linger);
        self
    }

    /// The option `max_hold = EXPR`.
    #[must_use]
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.hold.max_hold = Some(max_hold);
        self
    }

    /// The option `at_least = EXPR`.
    #[must_use]
    pub fn at_least(mut self, at_least: Duration) -> Self {
        self.hold.at_least = at_least;
        self
    }

    /// The option `lock_delay = EXPR`.
    #[must_use]
    pub fn lock_delay(mut self, lock_delay: Duration) -> Self {
        self.lock_delay = Some(lock_delay);
        self
    }

    units!(timeout: timeout_ms, timeout_s);
    units!(expire: expire_ms, expire_s);
    units!(linger: linger_ms, linger_s);
    units!(max_hold: max_hold_ms, max_hold_s);
    units!(at_least: at_least_ms, at_least_s);
    units!(lock_delay: lock_delay_ms, lock_delay_s);

    fn amount(
        self,
        setting: &'static str,
        amount: impl Amount,
        unit: fn(u64) -> Duration,
        set: fn(Self, Duration) -> Self,
    ) -> Self {
        if let Some(amount) = amount.amount() {
            return set(self, unit(amount));
        }
        self.refuse(setting, "it is negative or larger than a u64 holds")
    }

    /// The option `note = EXPR`.
    #[must_use]
    pub fn note(mut self, note: impl AsRef<str>) -> Self {
        let note = note.as_ref();
        if let Some(problem) = problem_of_note(note) {
            return self.refuse("note", problem);
        }
        self.hold.note = (!note.is_empty()).then(|| note.into());
        self
    }

    /// The option `renew = BOOL`.
    #[must_use]
    pub fn renew(mut self, renew: bool) -> Self {
        self.renew = Some(renew);
        self
    }

    /// Whether a fencing token is drawn with the lock.
    #[must_use]
    pub fn fenced(mut self, fenced: bool) -> Self {
        self.fenced = fenced;
        self
    }

    /// The option `on_fail`: the caller handles a busy lock, so that is not logged as a warning.
    #[must_use]
    pub fn expects_failure(mut self) -> Self {
        self.expects_failure = true;
        self
    }

    /// The option `mode = "read"`.
    #[must_use]
    pub fn read(self) -> Self {
        self.sharing(Share::READ)
    }

    /// The option `permits = EXPR`.
    #[must_use]
    pub fn permits(self, permits: impl Amount) -> Self {
        let permits = permits.amount().and_then(Share::permit);
        match permits {
            Some(share) => self.sharing(share),
            None => self.refuse("permits", "it is zero, negative, or more than 4,294,967,294: write at least 1"),
        }
    }

    fn sharing(self, share: Share) -> Self {
        match self.share {
            Some(before) if before != share => self
                .refuse("mode", "`read` and `permits` can't be combined, nor two numbers of permits: keep one of them"),
            _ => Self { share: Some(share), ..self },
        }
    }

    fn refuse(mut self, setting: &'static str, reason: &str) -> Self {
        self.name = self.name.and(Err(LockError::setting(setting, reason)));
        self
    }

    /// The option `on_lost = "…"`.
    #[must_use]
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.on_lost = on_lost;
        self
    }

    /// The option `on_busy = "…"`.
    #[must_use]
    pub fn on_busy(mut self, on_busy: OnBusy) -> Self {
        self.on_busy = on_busy;
        self
    }

    /// Fills in the namespace and the defaults of a manager, and checks the result.
    pub(crate) fn resolve(
        &self,
        settings: &Settings,
        is_body: bool,
    ) -> Result<(ResolvedRequest, Option<Box<KeySet>>), LockError> {
        // First, since it reports a wrong setting of the manager, which the checks below would blame on the request.
        let key = settings.full_name(self.name.clone()?)?;
        let request = self.resolve_for(key, settings, is_body)?;
        if request.replaces() {
            let reason = match &request {
                _ if self.names.is_some() => Some(NO_KEYS_REPLACED),
                request if request.share.is_some() => Some(NO_SHARE_REPLACED),
                request if request.is_try() => Some(NO_TRY_REPLACES),
                _ => None,
            };
            reason.map_or(Ok(()), |reason| Err(LockError::setting("on_busy", reason)))?;
        }
        let set = self.names.as_ref().map(|names| KeySet::new(names, &request, settings).map(Box::new)).transpose()?;
        Ok((request, set))
    }

    fn resolve_for(&self, key: Arc<str>, settings: &Settings, is_body: bool) -> Result<ResolvedRequest, LockError> {
        let expire = self.expire.unwrap_or(settings.default_expire);
        settings.check_lease("expire", expire)?;
        let lock_delay = match self.lock_delay {
            Some(delay) if self.share == Some(Share::READ) && !delay.is_zero() => {
                return Err(LockError::setting("lock_delay", READERS_WRITE_NOTHING));
            }
            _ if !is_body || self.share == Some(Share::READ) => Duration::ZERO,
            delay => delay.unwrap_or(settings.default_lock_delay),
        };
        let terms = Terms::new(&self.hold, lock_delay, settings)?;
        let linger_cs = settings.linger_cs(self.linger)?;
        let mut request = ResolvedRequest {
            key,
            prefix: PrefixPlace::behind(settings.namespace.as_deref(), self.prefix),
            timeout: self.timeout.unwrap_or(settings.default_timeout),
            expire: terms.as_ref().map_or(expire, |terms| terms.usable(expire, settings)),
            renew: self.renew.unwrap_or(true),
            fenced: self.fenced,
            if_busy: if self.expects_failure { IfBusy::GoesOn } else { IfBusy::Fails },
            on_busy: self.on_busy,
            share: self.share,
            body: is_body && self.on_lost == OnLost::Cancel,
            // Set when the request is polled.
            is_inside: false,
            linger_cs,
            terms,
        };
        let is_renewed_reader = request.share == Some(Share::READ) && request.renew;
        if request.share.is_some()
            && (!is_renewed_reader || request.terms.as_ref().is_some_and(|terms| terms.limit_time()))
        {
            // A manager's default is not a mistake of the request.
            let is_limited = self.hold.max_hold.is_some() || !self.hold.at_least.is_zero();
            if self.linger.is_some() && request.may_linger() && (is_limited || !is_renewed_reader) {
                return Err(LockError::setting("linger", NOT_USED_AGAIN));
            }
            request.linger_cs = 0;
        }
        Ok(request)
    }

    /// The request to `engine`, or to the current manager.
    pub(crate) fn entry(self, engine: Option<Opaque<Engine>>, is_body: bool) -> Result<Entry, LockError> {
        let engine = engine.or_else(scope::current).ok_or(LockError::NotInstalled)?;
        let (request, set) = self.resolve(engine.core().settings(), is_body)?;
        let kind = engine.core().store().kind();
        if let Some(share) = request.share {
            kind.check(Feature::Sharing, if share == Share::READ { "read" } else { "permits" })?;
        }
        if request.replaces() {
            kind.check(Feature::Force, "on_busy")?;
        }
        Ok(Entry { engine, request, set })
    }
}

/// The ways to wait for the lock.
///
/// All are boxed, so that everything behind them is compiled once, in this crate: each program that awaits an `async fn` compiles it again.
/// The options are resolved before the future is made, where they would take space while the task waits.
///
/// All are `cooperative`, like every call that may be ready at once: they use up their task's budget, as tokio's locks do. So a loop over
/// locks that needs no command lets the other tasks of its thread run.
impl LockOptions {
    pub(crate) fn acquire(self, engine: Opaque<Engine>) -> BoxFuture<'static, Result<LockGuard, LockError>> {
        let mut entry = self.entry(Some(engine), false);
        Box::pin(cooperative(async move {
            match entry {
                Ok(ref mut entry) => Ok(pin!(entry.enter(false)).await?.guard),
                Err(error) => Err(error),
            }
        }))
    }

    /// Waits for the hold of a body. Without an `engine` it uses the caller's current manager.
    pub(crate) fn enter(self, engine: Option<Opaque<Engine>>) -> BoxFuture<'static, Result<Held, LockError>> {
        let mut entry = self.entry(engine, true);
        Box::pin(cooperative(async move {
            match entry {
                Ok(ref mut entry) => pin!(entry.enter(true)).await,
                Err(error) => Err(error),
            }
        }))
    }

    /// Adopts the lock of `ticket`, whose whole name is in `self`, for a body or for a guard.
    pub(crate) fn adopt(
        mut self,
        engine: Opaque<Engine>,
        ticket: LockTicket,
        is_body: bool,
    ) -> BoxFuture<'static, Result<Held, LockError>> {
        Box::pin(cooperative(async move {
            surroundings::check()?;
            let core = engine.core();
            core.store().kind().check(Feature::Tickets, "ticket")?;
            core.settings().problem.clone().map_or(Ok(()), Err)?;
            self.name.clone()?;
            let share = ticket.token.share();
            if self.share.is_some_and(|wanted| Some(wanted) != share) {
                let reason = "its lock was held in another mode: leave `read` and `permits` out";
                return Err(LockError::setting("ticket", reason));
            }
            self.share = share;
            if ticket.token.is_replaceable() {
                self.on_busy = OnBusy::Replace;
            }
            let mut request = self.resolve_for(Arc::clone(&ticket.key), core.settings(), is_body)?;
            (request.prefix, request.is_inside) = (ticket.prefix, scope::is_inside(core));
            Ok(Held::new(entry::adopt(&engine, &request, &ticket.token).await?, request.body, None))
        }))
    }
}

/// An integer that is the value of an option.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an integer",
    label = "`…_ms`, `…_s` and `permits` take an integer",
    note = "for a `Duration` write the option without `_ms` or `_s`, as in `timeout = …`"
)]
pub trait Amount {
    /// The number. `None` when it is negative or larger than a `u64` holds.
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
