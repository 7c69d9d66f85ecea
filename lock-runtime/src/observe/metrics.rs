//! Every metric, by the `metrics` crate. Each is one fn, and no other file knows their names. `docs/telemetry.md` has the list.
//!
//! The recorder is looked up for each lease and each wait: an application may install it after the manager was made.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

use super::Path;

const ACQUIRED: &str = "cache_lock_acquired_total";
const TIMEOUTS: &str = "cache_lock_timeouts_total";
const LOST: &str = "cache_lock_lost_total";
const HAND_OVERS: &str = "cache_lock_handovers_total";
const HAND_OFFS: &str = "cache_lock_handoffs_total";
const COMMANDS: &str = "cache_lock_commands_total";
const RECONNECTS: &str = "cache_lock_reconnects_total";
const RENEWALS: &str = "cache_lock_renewals_total";
const WAIT: &str = "cache_lock_wait_seconds";
const HOLD: &str = "cache_lock_hold_seconds";
const HELD: &str = "cache_lock_held";
const WAITERS: &str = "cache_lock_waiters";
const LINGERING: &str = "cache_lock_lingering";

/// The only label. A key is never a label: there are too many keys.
fn labels(prefix: &str) -> Vec<Label> {
    vec![Label::new("prefix", prefix.to_owned())]
}

/// Says what each metric means, and starts those without a prefix at zero.
pub(crate) fn describe() {
    describe_counter!(ACQUIRED, "Holds that have begun.");
    describe_counter!(TIMEOUTS, "Requests that ended because the lock was busy.");
    describe_counter!(LOST, "Holds that were lost.");
    describe_counter!(HAND_OVERS, "Holds that came from the task before, in the same process.");
    describe_counter!(HAND_OFFS, "Holds that another process passed on.");
    describe_counter!(COMMANDS, "Commands sent to servers.");
    describe_counter!(RECONNECTS, "Connections that were made again.");
    describe_counter!(RENEWALS, "Leases that the background work has lengthened.");
    describe_histogram!(WAIT, Unit::Seconds, "How long a request waited for the lock that it got.");
    describe_histogram!(HOLD, Unit::Seconds, "How long a lock was held.");
    describe_gauge!(HELD, "Locks that are held now.");
    describe_gauge!(WAITERS, "Tasks that wait for a lock now.");
    describe_gauge!(LINGERING, "Leases that are kept now for the next hold.");
    counter!(COMMANDS).increment(0);
    counter!(RECONNECTS).increment(0);
    counter!(RENEWALS).increment(0);
}

/// What counts the holds of one prefix. A lease keeps it for its next hold: a hand-over costs less than to look up a metric.
#[derive(Debug)]
pub(crate) struct Holds(Option<Arc<OfPrefix>>);

#[derive(Debug)]
struct OfPrefix {
    prefix: Box<str>,
    acquired: Counter,
    hand_overs: OnceLock<Counter>,
    held: Gauge,
    lingering: Gauge,
    hold: Histogram,
}

impl Holds {
    pub(crate) fn new() -> Self {
        Self(None)
    }

    /// Counts a hold that begins.
    pub(crate) fn begin(&mut self, prefix: &str, path: Path) -> Holding {
        let kept = self.0.take().filter(|kept| &*kept.prefix == prefix);
        let holds = Arc::clone(self.0.insert(kept.unwrap_or_else(|| Arc::new(OfPrefix::new(prefix)))));
        holds.acquired.increment(1);
        match path {
            Path::HandOver => holds.hand_overs.get_or_init(|| counter!(HAND_OVERS, labels(prefix))).increment(1),
            Path::HandOff => counter!(HAND_OFFS, labels(prefix)).increment(1),
            Path::Store | Path::Linger | Path::ReEntry => {}
        }
        holds.held.increment(1);
        Holding { holds, since: Instant::now() }
    }
}

impl Holds {
    /// Counts a lease that lingers, until the value is dropped.
    pub(crate) fn linger(&self) -> Lingering {
        if let Some(holds) = &self.0 {
            holds.lingering.increment(1);
        }
        Lingering(self.0.clone())
    }
}

/// Counts a lease that lingers, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lingering(Option<Arc<OfPrefix>>);

impl Drop for Lingering {
    fn drop(&mut self) {
        if let Some(holds) = &self.0 {
            holds.lingering.decrement(1);
        }
    }
}

impl OfPrefix {
    fn new(prefix: &str) -> Self {
        let lingering = gauge!(LINGERING, labels(prefix));
        // The dashboard shows zero, and not nothing, where no lease lingers.
        lingering.increment(0);
        Self {
            lingering,
            prefix: prefix.into(),
            acquired: counter!(ACQUIRED, labels(prefix)),
            hand_overs: OnceLock::new(),
            held: gauge!(HELD, labels(prefix)),
            hold: histogram!(HOLD, labels(prefix)),
        }
    }
}

/// Counts a hold from its beginning until it is dropped.
#[derive(Debug)]
pub(crate) struct Holding {
    holds: Arc<OfPrefix>,
    since: Instant,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.holds.held.decrement(1);
        self.holds.hold.record(self.since.elapsed());
    }
}

/// Counts a task that waits, until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiter(Option<Gauge>);

impl Waiter {
    /// Counts nothing.
    pub(crate) fn nobody() -> Self {
        Self(None)
    }

    pub(crate) fn begin(prefix: &str) -> Self {
        let waiters = gauge!(WAITERS, labels(prefix));
        waiters.increment(1);
        Self(Some(waiters))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(waiters) = &self.0 {
            waiters.decrement(1);
        }
    }
}

/// A request has got its lock.
pub(crate) fn waited(prefix: &str, waited: Duration) {
    histogram!(WAIT, labels(prefix)).record(waited);
}

/// A request ended because the lock was busy.
pub(crate) fn timed_out(prefix: &str) {
    counter!(TIMEOUTS, labels(prefix)).increment(1);
}

/// A hold was lost.
pub(crate) fn lost(prefix: &str, holds: u64) {
    counter!(LOST, labels(prefix)).increment(holds);
}

/// Commands are sent to a server.
pub(crate) fn commands(count: u64) {
    counter!(COMMANDS).increment(count);
}

/// A connection was made again.
pub(crate) fn reconnected() {
    counter!(RECONNECTS).increment(1);
}

/// The keeper has lengthened leases.
pub(crate) fn renewed(count: u64) {
    counter!(RENEWALS).increment(count);
}
