//! [`ResolvedRequest`]: a request with every default filled in.

use std::sync::Arc;
use std::time::Duration;

use super::terms::{Terms, Whole};
use crate::OnBusy;
use crate::keep_alive::KeepAlive;
use crate::key::PrefixPlace;
use crate::share::Share;

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
    /// `None` for the lock alone.
    pub(crate) share: Option<Share>,
    /// Whether the hold is around a body that is dropped when the hold is lost (rule L6: such a hold ends the whole
    /// lease).
    pub(crate) body: bool,
    /// Whether it is asked for inside of a body under another lock of the manager.
    pub(crate) is_inside: bool,
    /// For how many hundredths of a second the lease is kept for the next hold here. Every waiter has room for this, so it is a
    /// byte.
    pub(crate) linger_cs: u8,
    /// How long the hold may last, and how long its lock is kept from others. Most requests say nothing of that.
    pub(crate) terms: Option<Arc<Terms>>,
}

/// What it means to the caller that the lock is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfBusy {
    /// It fails, which is a reason to warn.
    Fails,
    /// It has something else to do.
    GoesOn,
}

impl ResolvedRequest {
    /// Whether the lock is tried once, and not waited for.
    pub(crate) fn is_try(&self) -> bool {
        self.timeout.is_zero()
    }

    /// Whether it takes the lock from its holder.
    pub(crate) fn replaces(&self) -> bool {
        self.on_busy == OnBusy::Replace
    }

    /// The lease that its hold needs before it starts.
    pub(crate) fn lease(&self) -> Duration {
        self.terms.as_ref().map_or(self.expire, |terms| terms.lease(self.expire))
    }

    /// For how long others are kept out from the start of the hold.
    pub(crate) fn at_least(&self) -> Duration {
        mutant!(KeptWithoutStore => return Duration::ZERO);
        self.terms.as_ref().map_or(Duration::ZERO, |terms| terms.at_least)
    }

    /// Whether it is one of several keys. The time of its hold begins when all of them are held.
    pub(crate) fn is_part(&self) -> bool {
        self.terms.as_ref().is_some_and(|terms| terms.whole.is_some())
    }

    /// Whether it tries once, and is no part of a request that waits.
    pub(crate) fn is_single_try(&self) -> bool {
        self.is_try() && self.whole().is_none_or(Whole::is_try)
    }

    /// The time of the request for several keys that it is a part of.
    pub(crate) fn whole(&self) -> Option<&Whole> {
        self.terms.as_ref()?.whole.as_ref()
    }

    /// What such a part is kept alive by until all keys are held.
    pub(crate) fn alive(&self) -> Option<Arc<KeepAlive>> {
        self.terms.as_ref()?.alive.clone()
    }

    /// The same request as a part of one for several keys, which wants `timeout` for this key.
    pub(crate) fn part_of(&self, whole: Whole, timeout: Duration, alive: &Arc<KeepAlive>) -> Self {
        Self { timeout, terms: Some(Terms::of_part(self.terms.as_deref(), whole, alive)), ..self.clone() }
    }

    /// Whether the lease may be kept for the next hold here.
    pub(crate) fn may_linger(&self) -> bool {
        self.linger_cs > 0
    }

    /// For how long the lease of its hold is kept after the hold. One of several keys is not kept before all of them are held: a request
    /// that fails keeps nothing from others.
    pub(crate) fn linger(&self) -> Duration {
        mutant!(PartLingers => return Duration::from_millis(u64::from(self.linger_cs) * 10));
        if self.is_part() {
            return Duration::ZERO;
        }
        Duration::from_millis(u64::from(self.linger_cs) * 10)
    }

    /// The prefix as its author wrote it, without the namespace.
    pub(crate) fn prefix(&self) -> &str {
        self.prefix.of(&self.key)
    }
}
