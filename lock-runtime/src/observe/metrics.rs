//! Every metric, by the `metrics` crate. Each is one fn, and no other file knows their names. `docs/telemetry.md` lists them.
//!
//! The recorder is looked up for each lease and each wait, because an application may install it after the manager was made.

use std::sync::{Arc, OnceLock};

use futures_util::FutureExt as _;
use metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

use tokio::time::Instant;

use super::{ErrorKind, LockError, Outcome, Path};
use crate::mutex::Mutex;
use oldest::Going;

mod oldest;

pub(crate) use oldest::{tell_last, tell_oldest};

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
const OLDEST_HOLD: &str = "cache_lock_oldest_hold_seconds";
const OLDEST_WAIT: &str = "cache_lock_oldest_wait_seconds";

/// The label of everything about locks. A key is never a label: there are too many keys.
fn labels(prefix: &str) -> Vec<Label> {
    vec![Label::new("prefix", prefix.to_owned())]
}

/// Describes each metric, and starts those without a prefix at zero.
pub(crate) fn describe() {
    describe_counter!(ACQUIRED, "Holds that have begun.");
    describe_counter!(TIMEOUTS, "Requests that ended because the lock was busy.");
    describe_counter!(LOST, "Holds that were lost.");
    describe_counter!(HAND_OVERS, "Holds that came from the task before, in the same process.");
    describe_counter!(HAND_OFFS, "Holds that another process passed on.");
    describe_counter!(COMMANDS, "Commands sent to servers.");
    describe_counter!(RECONNECTS, "Connections that were made again.");
    describe_counter!(RENEWALS, "Leases that the background work has lengthened.");
    describe_histogram!(WAIT, Unit::Seconds, "How long a request waited for its lock, by how that ended.");
    describe_histogram!(HOLD, Unit::Seconds, "How long a lock was held.");
    describe_gauge!(HELD, "Locks that are held now.");
    describe_gauge!(WAITERS, "Tasks that wait for a lock now.");
    describe_gauge!(LINGERING, "Leases that are kept now for the next hold.");
    describe_gauge!(OLDEST_HOLD, Unit::Seconds, "For how long the oldest of the holds goes on.");
    describe_gauge!(OLDEST_WAIT, Unit::Seconds, "For how long the oldest of the waiting tasks waits.");
    counter!(COMMANDS).increment(0);
    counter!(RECONNECTS).increment(0);
    counter!(RENEWALS).increment(0);
}

/// The counters for the holds of one prefix. A slot keeps them for its next hold: a hand-over costs less than looking up a metric.
///
/// A recorder may run any code, so it is called under no lock: neither under that of the slot, nor under this one.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<Option<Arc<OfPrefix>>>);

#[derive(Debug)]
struct OfPrefix {
    prefix: Box<str>,
    acquired: Counter,
    hand_overs: OnceLock<Counter>,
    held: Gauge,
    lingering: Gauge,
    hold: Histogram,
    going: Arc<Going>,
}

impl OfPrefix {
    fn new(prefix: &str) -> Arc<Self> {
        let lingering = gauge!(LINGERING, labels(prefix));
        // A dashboard shows zero, rather than nothing, where no lease lingers.
        lingering.increment(0);
        Arc::new(Self {
            lingering,
            prefix: prefix.into(),
            acquired: counter!(ACQUIRED, labels(prefix)),
            hand_overs: OnceLock::new(),
            held: gauge!(HELD, labels(prefix)),
            hold: histogram!(HOLD, labels(prefix)),
            going: Going::of(prefix),
        })
    }
}

impl Holds {
    fn kept(&self) -> Option<Arc<OfPrefix>> {
        self.0.lock().clone()
    }

    /// Counts a hold that begins.
    pub(crate) fn begin(&self, prefix: &str, path: Path) -> Holding {
        let kept = self.kept().filter(|kept| &*kept.prefix == prefix);
        let holds = kept.unwrap_or_else(|| {
            let new = OfPrefix::new(prefix);
            let former = self.0.lock().replace(Arc::clone(&new));
            drop(former);
            new
        });
        holds.acquired.increment(1);
        match path {
            Path::HandOver => holds.hand_overs.get_or_init(|| counter!(HAND_OVERS, labels(prefix))).increment(1),
            Path::HandOff => counter!(HAND_OFFS, labels(prefix)).increment(1),
            Path::Store | Path::Linger | Path::ReEntry => {}
        }
        holds.held.increment(1);
        let since = Instant::now();
        let place = holds.going.holds.begin(since);
        Holding(Mutex::new(Some(Held { holds, since, place })))
    }

    pub(crate) fn linger(&self) -> Counted {
        self.kept().map_or_else(Counted::nothing, |holds| Counted::begin(holds.lingering.clone()))
    }
}

/// Counts a hold from its beginning until it ends, or is dropped.
#[derive(Debug)]
pub(crate) struct Holding(Mutex<Option<Held>>);

impl Holding {
    pub(crate) fn end(&self) {
        let ended = self.0.lock().take();
        drop(ended);
    }
}

#[derive(Debug)]
struct Held {
    holds: Arc<OfPrefix>,
    since: Instant,
    /// Its index among the holds in progress.
    place: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.holds.going.holds.end(self.place);
        self.holds.held.decrement(1);
        self.holds.hold.record(self.since.elapsed());
    }
}

/// Something that a gauge counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Gauge, Option<Waiting>);

#[derive(Debug)]
struct Waiting {
    going: Arc<Going>,
    /// Its index among the waits in progress.
    place: usize,
}

impl Counted {
    pub(crate) fn nothing() -> Self {
        Self(Gauge::noop(), None)
    }

    pub(crate) fn waiter(prefix: &str) -> Self {
        let mut counted = Self::begin(gauge!(WAITERS, labels(prefix)));
        let going = Going::of(prefix);
        let place = going.waits.begin(Instant::now());
        counted.1 = Some(Waiting { going, place });
        counted
    }

    fn begin(gauge: Gauge) -> Self {
        gauge.increment(1);
        Self(gauge, None)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1);
        if let Some(Waiting { going, place }) = &self.1 {
            going.waits.end(*place);
        }
    }
}

/// Records how long `waiting` takes to get a request's lock or fail. With several keys, a busy one `is_part` of a request that goes on.
pub(crate) fn wait<T>(
    prefix: &str,
    is_part: bool,
    waiting: impl Future<Output = Result<T, LockError>>,
) -> impl Future<Output = Result<T, LockError>> {
    let since = Instant::now();
    waiting.inspect(move |outcome| {
        let outcome = Outcome::of(outcome.as_ref());
        if is_part && outcome == Outcome::Failed(ErrorKind::Busy) {
            return;
        }
        let labels = vec![Label::new("prefix", prefix.to_owned()), Label::from_static_parts("outcome", outcome.name())];
        histogram!(WAIT, labels).record(since.elapsed());
    })
}

/// A request ended because the lock was busy.
pub(crate) fn timed_out(prefix: &str) {
    counter!(TIMEOUTS, labels(prefix)).increment(1);
}

pub(crate) fn lost(prefix: &str, holds: u64) {
    counter!(LOST, labels(prefix)).increment(holds);
}

pub(crate) fn commands(count: u64) {
    counter!(COMMANDS).increment(count);
}

/// A connection was replaced.
pub(crate) fn reconnected() {
    counter!(RECONNECTS).increment(1);
}

/// The keeper has renewed leases.
pub(crate) fn renewed(count: u64) {
    counter!(RENEWALS).increment(count);
}
