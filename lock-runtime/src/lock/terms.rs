//! [`Terms`]: how long a hold may last, and how long its lock is kept from others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::LockError;
use crate::clock::{Deadline, Moment};
use crate::keep_alive::KeepAlive;
use crate::settings::{Settings, check_at_least, check_max_hold};

/// The time of a request for several keys. Each of its parts asks for one key, and has what is left of that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole {
    /// When it stops waiting for locks.
    pub(crate) give_up: Deadline,
    /// When it returns, whatever the server does. All its commands together have no more time than a single command has.
    pub(crate) latest: Deadline,
    /// Whether some of the time went by before this part began.
    pub(crate) is_begun: bool,
}

impl Whole {
    /// Whether each key is tried once, and not waited for.
    pub(crate) fn is_try(&self) -> bool {
        self.give_up.span().is_zero()
    }
}

/// What a request says about the time of its hold, beside the lease. A request that says nothing has no terms, and pays nothing for them.
#[derive(Debug)]
pub(crate) struct Terms {
    max_hold: Option<Duration>,
    pub(crate) at_least: Duration,
    /// The lease that keeps others out for `at_least`, however slow the answer is. Zero without `at_least`.
    kept_lease: Duration,
    /// Of a request for one of several keys: the time of the request for all of them. It is here because every waiter has room for
    /// what is in the request itself.
    pub(crate) whole: Option<Whole>,
    /// What the hold of such a part is kept alive by until all keys are held.
    pub(crate) alive: Option<Arc<KeepAlive>>,
    /// Whether the hold was lost because it had lasted for `max_hold`.
    is_spent: AtomicBool,
}

impl Terms {
    /// `None` when nothing is said.
    pub(crate) fn new(
        max_hold: Option<Duration>,
        at_least: Duration,
        settings: &Settings,
    ) -> Result<Option<Arc<Self>>, LockError> {
        if max_hold.is_none() && at_least.is_zero() {
            return Ok(None);
        }
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
            kept_lease,
            whole: None,
            alive: None,
            is_spent: AtomicBool::new(false),
        })))
    }

    /// The terms of a request for one of several keys, which has these `terms`. All of the requests together have the time `whole`.
    pub(crate) fn of_part(terms: Option<&Self>, whole: Whole, alive: &Arc<KeepAlive>) -> Arc<Self> {
        let (max_hold, at_least, kept_lease) =
            terms.map_or_else(Default::default, |terms| (terms.max_hold, terms.at_least, terms.kept_lease));
        let (whole, alive) = (Some(whole), Some(Arc::clone(alive)));
        Arc::new(Self { max_hold, at_least, kept_lease, whole, alive, is_spent: AtomicBool::new(false) })
    }

    /// The part of a lease of `expire` that the hold itself can use: none is longer than the hold may last, and the answer to
    /// its ask may take.
    pub(crate) fn usable(&self, expire: Duration, settings: &Settings) -> Duration {
        let lease = |longest: Duration| settings.drift().lease_for(longest.saturating_add(settings.command_timeout));
        self.max_hold.map_or(expire, |longest| expire.min(lease(longest)))
    }

    /// The lease to confirm before a hold starts that has use for a lease of `expire`.
    pub(crate) fn lease(&self, expire: Duration) -> Duration {
        mutant!(KeptWithoutStore => return expire);
        expire.max(self.kept_lease)
    }

    /// Until when others are kept out, if the hold starts `now`.
    pub(crate) fn kept_until(&self, now: Moment) -> Option<Box<Deadline>> {
        (!self.at_least.is_zero()).then(|| Box::new(Deadline::new(now, self.at_least)))
    }

    /// The latest end of a hold that began at `since`.
    pub(crate) fn latest_end(&self, since: Moment) -> Option<Deadline> {
        mutant!(RenewedPastMaxHold => return None);
        self.max_hold.map(|longest| Deadline::new(since, longest))
    }

    pub(crate) fn note_spent(&self) {
        self.is_spent.store(true, Ordering::Release);
    }

    /// The longest time of the hold.
    pub(crate) fn max_hold(&self) -> Option<Duration> {
        self.max_hold
    }

    /// The time that the hold was allowed, if the hold was lost because this time was over.
    pub(crate) fn spent(&self) -> Option<Duration> {
        self.max_hold.filter(|_| self.is_spent.load(Ordering::Acquire))
    }
}
