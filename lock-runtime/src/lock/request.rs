//! [`ResolvedRequest`]: a request with every default filled in; and its [`Terms`]: how long the hold may last, and how long its lock is
//! kept from others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock::{Deadline, Moment};
use crate::keep_alive::KeepAlive;
use crate::key::PrefixPlace;
use crate::settings::{Settings, check_at_least, check_lock_delay, check_max_hold};
use crate::share::Share;
use crate::{LockError, OnBusy};

/// A request with the full name of its lock and a value for every option.
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
#[derive(Clone, Debug)]
pub(crate) struct ResolvedRequest {
    pub(crate) key: Arc<str>,
    pub(crate) prefix: PrefixPlace,
    pub(crate) timeout: Duration,
    pub(crate) expire: Duration,
    pub(crate) renew: bool,
    pub(crate) fenced: bool,
    pub(crate) if_busy: IfBusy,
    pub(crate) on_busy: OnBusy,
    /// `None` for the exclusive lock.
    pub(crate) share: Option<Share>,
    /// Whether the hold is around a body that is dropped if the hold is lost (rule L1: such a hold ends the whole lease).
    pub(crate) body: bool,
    /// Whether it is made inside a body under another lock of the manager.
    pub(crate) is_inside: bool,
    /// For how many hundredths of a second the lease is kept for the next hold here. A byte, because every waiter pays for it.
    pub(crate) linger_cs: u8,
    /// The options that few requests have.
    pub(crate) terms: Option<Arc<Terms>>,
}

/// What a busy lock means to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfBusy {
    /// It fails, which is a reason to warn.
    Fails,
    /// It has something else to do.
    GoesOn,
}

impl ResolvedRequest {
    /// Whether the lock is tried once, without waiting.
    pub(crate) fn is_try(&self) -> bool {
        self.timeout.is_zero()
    }

    pub(crate) fn replaces(&self) -> bool {
        self.on_busy == OnBusy::Replace
    }

    /// The lease that must be confirmed before the hold starts.
    pub(crate) fn lease(&self) -> Duration {
        self.terms.as_ref().map_or(self.expire, |terms| terms.lease(self.expire))
    }

    /// For how long others are kept out from the start of the hold.
    pub(crate) fn at_least(&self) -> Duration {
        mutant!(KeptWithoutStore => return Duration::ZERO);
        self.terms.as_ref().map_or(Duration::ZERO, |terms| terms.at_least)
    }

    /// Whether it is for one of several keys. The time of its hold begins when all of them are held.
    pub(crate) fn is_part(&self) -> bool {
        self.terms.as_ref().is_some_and(|terms| terms.whole.is_some())
    }

    /// Whether it tries once, and is not part of a request that waits.
    pub(crate) fn is_single_try(&self) -> bool {
        self.is_try() && self.whole().is_none_or(Whole::is_try)
    }

    /// The time of the request for several keys that this is a part of.
    pub(crate) fn whole(&self) -> Option<&Whole> {
        self.terms.as_ref()?.whole.as_ref()
    }

    /// What keeps such a part alive until all keys are held.
    pub(crate) fn alive(&self) -> Option<Arc<KeepAlive>> {
        self.terms.as_ref()?.alive.clone()
    }

    /// Turns this request into a part of one for several keys, with a `timeout` of its own.
    pub(crate) fn part_of(&self, whole: Whole, timeout: Duration, alive: &Arc<KeepAlive>) -> Self {
        let of_all = self.terms.as_deref();
        let terms = Terms {
            max_hold: of_all.and_then(|terms| terms.max_hold),
            at_least: of_all.map_or(Duration::ZERO, |terms| terms.at_least),
            note: of_all.and_then(|terms| terms.note.clone()),
            lock_delay: of_all.map_or(Duration::ZERO, |terms| terms.lock_delay),
            slack: of_all.map_or(Duration::ZERO, |terms| terms.slack),
            kept_lease: of_all.map_or(Duration::ZERO, |terms| terms.kept_lease),
            whole: Some(whole),
            alive: Some(Arc::clone(alive)),
            is_spent: AtomicBool::new(false),
        };
        Self { timeout, terms: Some(Arc::new(terms)), ..self.clone() }
    }

    pub(crate) fn note(&self) -> Option<&str> {
        self.terms.as_ref()?.note()
    }

    pub(crate) fn may_linger(&self) -> bool {
        self.linger_cs > 0
    }

    /// How long the lease is kept after its hold. One of several keys is not kept until all of them are held: a request that fails must not
    /// keep anything from others.
    pub(crate) fn linger(&self) -> Duration {
        let is_kept = mutant!(PartLingers => true, else !self.is_part());
        if is_kept { Duration::from_millis(u64::from(self.linger_cs) * 10) } else { Duration::ZERO }
    }

    /// The prefix as its author wrote it, without the namespace.
    pub(crate) fn prefix(&self) -> &str {
        self.prefix.of(&self.key)
    }
}

/// The time of a request for several keys. Each part asks for one key, in what is left of that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole {
    pub(crate) give_up: Deadline,
    /// When it returns, whatever the server does. All its commands together get no more time than a single command.
    pub(crate) latest: Deadline,
    /// Whether some of the time had passed before this part began.
    pub(crate) is_begun: bool,
    /// Whether a part before this one was told that its lock is busy.
    pub(crate) was_refused: bool,
}

impl Whole {
    /// Whether each key is tried once, without waiting.
    pub(crate) fn is_try(&self) -> bool {
        self.give_up.span().is_zero()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct HoldOptions {
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Duration,
    /// For people: who holds the lock, and why.
    pub(crate) note: Option<Arc<str>>,
}

/// What a request says about its hold, apart from the lease. A request that says nothing has no terms, and pays nothing for them.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Duration,
    note: Option<Arc<str>>,
    /// For how long the lock rests if a body is dropped before its end. Zero for a guard.
    pub(crate) lock_delay: Duration,
    /// How much longer than `max_hold` the lease must last, so that the lock is still held when it is made to rest.
    slack: Duration,
    /// The lease that keeps others out for `at_least`, however slow the answer is. Zero without `at_least`.
    kept_lease: Duration,
    /// For one of several keys: the time of the request for all of them. It is here because every waiter pays for what is in the request
    /// itself.
    pub(crate) whole: Option<Whole>,
    /// What keeps such a part's hold alive until all keys are held.
    pub(crate) alive: Option<Arc<KeepAlive>>,
    /// Whether the hold was lost because it reached `max_hold`.
    is_spent: AtomicBool,
}

impl Terms {
    /// `None` if all options are defaults.
    pub(crate) fn new(
        options: &HoldOptions,
        lock_delay: Duration,
        settings: &Settings,
    ) -> Result<Option<Arc<Self>>, LockError> {
        let &HoldOptions { max_hold, at_least, ref note } = options;
        let max_hold = max_hold.or(settings.default_max_hold);
        if max_hold.is_none() && at_least.is_zero() && lock_delay.is_zero() && note.is_none() {
            return Ok(None);
        }
        check_lock_delay("lock_delay", lock_delay)?;
        max_hold.map_or(Ok(()), check_max_hold)?;
        let mut kept_lease = Duration::ZERO;
        if !at_least.is_zero() {
            check_at_least(at_least)?;
            // The time counts from the start of the hold, and the lease from before the command that confirms it.
            kept_lease = settings.drift().lease_for(at_least.saturating_add(settings.command_timeout));
            settings.check_lease("at_least", kept_lease)?;
        }
        Ok(Some(Arc::new(Self {
            max_hold,
            at_least,
            note: note.clone(),
            lock_delay,
            slack: if lock_delay.is_zero() { Duration::ZERO } else { settings.command_timeout },
            kept_lease,
            whole: None,
            alive: None,
            is_spent: AtomicBool::new(false),
        })))
    }

    /// The part of a lease of `expire` that the hold can use: no longer than the hold may last plus the time for the answer to its ask.
    pub(crate) fn usable(&self, expire: Duration, settings: &Settings) -> Duration {
        let lease = |longest: Duration| settings.drift().lease_for(longest.saturating_add(settings.command_timeout));
        self.max_hold.map_or(expire, |longest| expire.min(lease(longest)))
    }

    /// The lease to confirm before a hold starts that needs a lease of `expire`.
    pub(crate) fn lease(&self, expire: Duration) -> Duration {
        mutant!(KeptWithoutStore => return expire);
        expire.max(self.kept_lease)
    }

    pub(crate) fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Whether they limit the time of the hold.
    pub(crate) fn limit_time(&self) -> bool {
        self.max_hold.is_some() || !self.at_least.is_zero()
    }

    pub(crate) fn slack(&self) -> Duration {
        mutant!(NoTimeToRest => return Duration::ZERO);
        self.slack
    }

    /// Until when others are kept out, if the hold starts `now`.
    pub(crate) fn kept_until(&self, now: Moment) -> Option<Box<Deadline>> {
        (!self.at_least.is_zero()).then(|| Box::new(Deadline::new(now, self.at_least)))
    }

    pub(crate) fn latest_end(&self, since: Moment) -> Option<Deadline> {
        mutant!(RenewedPastMaxHold => return None);
        self.max_hold.map(|longest| Deadline::new(since, longest))
    }

    pub(crate) fn note_spent(&self) {
        self.is_spent.store(true, Ordering::Release);
    }

    /// The hold's time limit, if the hold was lost because it reached that limit.
    pub(crate) fn spent(&self) -> Option<Duration> {
        self.max_hold.filter(|_| self.is_spent.load(Ordering::Acquire))
    }
}
