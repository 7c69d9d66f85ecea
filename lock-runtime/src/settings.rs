//! [`Settings`]: the settings of a manager, the bounds of what it and its requests may ask for, and what a request may choose.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Drift;
use crate::timing::LONGEST_LINGER;
use crate::{InvalidKey, LockError, MAX_NAME_BYTES, key};

/// The shortest lease. A shorter lease would end before a release can be sent on a usual network.
const SHORTEST_LEASE: Duration = Duration::from_millis(10);
/// The longest lease. A longer lease comes from a mistaken unit: users of similar libraries got 10,000 s for 10 s.
const LONGEST_LEASE: Duration = Duration::from_secs(365 * 24 * 3600);

/// The shortest timeout of a command and of a connection. A shorter timeout would let nothing through: it would be over before an
/// answer comes, even from the same machine.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);

/// The longest timeout of a command and of a connection. A longer timeout would be none. What is a multiple of it, or is added to
/// an instant, can't overflow.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);

/// The longest grace. A longer allowance for a late holder would be a lease of its own.
const LONGEST_GRACE: Duration = Duration::from_secs(3600);

/// The largest number of replicas to wait for. No server has more, so `WAIT` would wait in vain each time.
const MOST_REPLICAS: u32 = 100;

/// What every name has behind its namespace, in bytes: two colons, a prefix, a key.
const SHORTEST_NAME: usize = 4;

/// The longest label in bytes: people read it.
const LONGEST_LABEL: usize = 255;

/// The settings of a manager.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) namespace: Option<String>,
    pub(crate) label: String,
    pub(crate) default_timeout: Duration,
    pub(crate) default_expire: Duration,
    pub(crate) default_linger: Duration,
    /// How many leases may linger at once.
    pub(crate) max_lingering: usize,
    /// Why no lease may linger here; `None` where leases may.
    pub(crate) refuses_linger: Option<&'static str>,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    /// After how much time without a server an acquire fails at once.
    pub(crate) fail_fast: Option<Duration>,
    /// How many replicas must confirm a grant, and within what time.
    pub(crate) min_replicas: Option<(u32, Duration)>,
    /// The longest lease that a request may ask for, with the grace.
    pub(crate) max_lease: Option<Duration>,
    /// A key of the protocol. No lock may have this name.
    pub(crate) reserved: Option<&'static str>,
    pub(crate) grace: Duration,
    pub(crate) max_clock_drift_ppm: u32,
    pub(crate) drain: Duration,
    /// A hold that lasts this long is an event.
    pub(crate) warn_held_for: Duration,
    pub(crate) max_waiters: usize,
    pub(crate) max_waiters_per_key: usize,
    /// What is wrong with the settings above, when the constructor could return no error. Each request reports it.
    pub(crate) problem: Option<LockError>,
}

/// The name of this host.
#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: None,
            label: format!("{}:{}", host(), std::process::id()),
            default_timeout: Duration::from_secs(2),
            default_expire: Duration::from_secs(30),
            default_linger: Duration::ZERO,
            max_lingering: 10_000,
            refuses_linger: None,
            command_timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_secs(2),
            fail_fast: None,
            min_replicas: None,
            max_lease: None,
            reserved: None,
            grace: Duration::ZERO,
            max_clock_drift_ppm: Drift::DEFAULT.ppm(),
            drain: Duration::from_secs(5),
            warn_held_for: Duration::from_secs(60),
            max_waiters: 1_000_000,
            max_waiters_per_key: 250_000,
            problem: None,
        }
    }
}

impl Settings {
    /// Refuses settings that make no sense.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        if let Some(namespace) = &self.namespace {
            key::check_text(namespace).map_err(|problem| LockError::setting("namespace", format!("it {problem}")))?;
            if namespace.len() + SHORTEST_NAME > MAX_NAME_BYTES {
                let reason =
                    format!("it is {} bytes long, and a name may have {MAX_NAME_BYTES} with it", namespace.len());
                return Err(LockError::setting("namespace", reason));
            }
        }
        for (setting, timeout) in [("command_timeout", self.command_timeout), ("connect_timeout", self.connect_timeout)]
        {
            let reason = if timeout < SHORTEST_TIMEOUT {
                format!("{timeout:?} would let nothing through: the shortest is {SHORTEST_TIMEOUT:?}")
            } else if timeout > LONGEST_TIMEOUT {
                format!("{timeout:?} would never doubt a connection that is dead: the longest is {LONGEST_TIMEOUT:?}")
            } else {
                continue;
            };
            return Err(LockError::setting(setting, reason));
        }
        if let Some(longest) = self.max_lease {
            refuse("max_lease", longest, problem_of_lease(longest.as_nanos()))?;
        }
        if self.min_replicas.is_some_and(|(count, _)| count > MOST_REPLICAS) {
            let reason = format!("no server has more than {MOST_REPLICAS} replicas that could confirm a lock");
            return Err(LockError::setting("min_replicas", reason));
        }
        if self.min_replicas.is_some_and(|(_, within)| within.is_zero() || within > self.command_timeout / 2) {
            let reason = format!(
                "its timeout must be more than zero and at most half of the command timeout, {:?}: other commands wait for it",
                self.command_timeout
            );
            return Err(LockError::setting("min_replicas", reason));
        }
        for (setting, most) in [("max_waiters", self.max_waiters), ("max_waiters_per_key", self.max_waiters_per_key)] {
            if most == 0 {
                let reason = "nobody could wait at all; use a timeout of zero, or `try_acquire`, to try once";
                return Err(LockError::setting(setting, reason));
            }
        }
        if self.grace > LONGEST_GRACE {
            let reason =
                format!("{:?} is more than {LONGEST_GRACE:?}: it would keep others out for as long", self.grace);
            return Err(LockError::setting("grace", reason));
        }
        if Drift::of_ppm(self.max_clock_drift_ppm).is_none() {
            let reason = format!(
                "it is {}, in parts per million, and has to be {} (0.1 %) to {} (50 %)",
                self.max_clock_drift_ppm,
                Drift::LEAST_PPM,
                Drift::MOST_PPM
            );
            return Err(LockError::setting("max_clock_drift_ppm", reason));
        }
        if self.label.len() > LONGEST_LABEL {
            let reason = format!("it is longer than {LONGEST_LABEL} bytes, and part of every token");
            return Err(LockError::setting("label", reason));
        }
        self.check_linger(self.default_linger)?;
        self.check_lease("default_expire", self.default_expire)
    }

    /// Refuses a linger time that is too long, or any where no lease may linger.
    pub(crate) fn check_linger(&self, linger: Duration) -> Result<(), LockError> {
        let reason = match self.refuses_linger {
            _ if linger.is_zero() => return Ok(()),
            Some(reason) => reason.to_owned(),
            None if linger > LONGEST_LINGER => {
                format!("{linger:?} is more than {LONGEST_LINGER:?}: for so long other clients find the lock taken")
            }
            None => return Ok(()),
        };
        Err(LockError::setting("linger", reason))
    }

    /// Refuses a lease that makes no sense, or is longer than `max_lease`.
    pub(crate) fn check_lease(&self, setting: &'static str, lease: Duration) -> Result<(), LockError> {
        refuse(setting, lease, problem_of_lease(lease.as_nanos()))?;
        let Some(longest) = self.max_lease.filter(|longest| lease + self.grace > *longest) else { return Ok(()) };
        let grace = if self.grace.is_zero() { String::new() } else { format!(" and a grace of {:?}", self.grace) };
        let reason = format!("a lease of {lease:?}{grace} is longer than the manager's `max_lease`, {longest:?}");
        Err(LockError::setting(setting, reason))
    }

    /// The linger time of a request that may have its own, in hundredths of a second, rounded up.
    pub(crate) fn linger_cs(&self, linger: Option<Duration>) -> Result<u8, LockError> {
        let linger = linger.unwrap_or(self.default_linger);
        if linger.is_zero() {
            return Ok(0);
        }
        self.check_linger(linger)?;
        Ok(u8::try_from(linger.as_micros().div_ceil(10_000)).unwrap_or(u8::MAX))
    }

    /// Refuses settings that make no sense for locks in this process.
    pub(crate) fn check_in_memory(&self) -> Result<(), LockError> {
        if self.min_replicas.is_some() {
            return Err(LockError::setting("min_replicas", "locks in this process have no replicas: leave it out"));
        }
        self.check()
    }

    /// How far the clocks may run apart.
    pub(crate) fn drift(&self) -> Drift {
        // `check` has refused a value out of bounds before anything uses these settings.
        Drift::of_ppm(self.max_clock_drift_ppm).unwrap_or(Drift::DEFAULT)
    }

    /// A lock's name in this manager's namespace. An error when the manager could not report its impossible settings
    /// itself.
    pub(crate) fn full_name(&self, name: Arc<str>) -> Result<Arc<str>, LockError> {
        if let Some(problem) = &self.problem {
            return Err(problem.clone());
        }
        let name = match &self.namespace {
            Some(namespace) => key::in_namespace(namespace, &name)?,
            None => name,
        };
        if self.reserved.is_some_and(|reserved| *name == *reserved) {
            let reason = InvalidKey::new("a quorum keeps its own record under this name: use another prefix or key");
            return Err(LockError::InvalidKey { key: name.to_string(), reason });
        }
        Ok(name)
    }
}

/// Refuses a longest hold that is out of bounds.
pub(crate) fn check_max_hold(max_hold: Duration) -> Result<(), LockError> {
    refuse("max_hold", max_hold, problem_of_max_hold(max_hold.as_nanos()))
}

/// Refuses a time that keeps others out for too long.
pub(crate) fn check_at_least(at_least: Duration) -> Result<(), LockError> {
    let problem = "a time of more than a year is a unit mistaken for another; nobody could lock until then";
    refuse("at_least", at_least, (at_least > LONGEST_LEASE).then_some(problem))
}

fn refuse(setting: &'static str, time: Duration, problem: Option<&str>) -> Result<(), LockError> {
    problem.map_or(Ok(()), |problem| Err(LockError::setting(setting, format!("{problem} ({time:?})"))))
}

/// What is wrong with a longest hold of this many nanoseconds. The compiler runs it for constants, as the next two.
pub(crate) const fn problem_of_max_hold(nanos: u128) -> Option<&'static str> {
    let too_long =
        "a hold of more than a year is a unit mistaken for another; leave `max_hold` out for a hold without a limit";
    let too_short = "a hold of less than 10 ms would end before it can be used";
    problem_of(nanos, ["a hold of zero is over before the body starts", too_short, too_long])
}

/// What is wrong with a lease of this many nanoseconds.
pub(crate) const fn problem_of_lease(nanos: u128) -> Option<&'static str> {
    let too_long =
        "a lease of more than a year is a unit mistaken for another; after a crash nobody could lock until then";
    let too_short = "a lease of less than 10 ms would end before it can be used";
    problem_of(nanos, ["a lease of zero would protect nothing", too_short, too_long])
}

const fn problem_of(nanos: u128, [zero, too_short, too_long]: [&'static str; 3]) -> Option<&'static str> {
    match nanos {
        0 => Some(zero),
        _ if nanos < SHORTEST_LEASE.as_nanos() => Some(too_short),
        _ if nanos > LONGEST_LEASE.as_nanos() => Some(too_long),
        _ => None,
    }
}

/// What is wrong with a linger time of this many nanoseconds.
pub(crate) const fn problem_of_linger(nanos: u128) -> Option<&'static str> {
    if nanos > LONGEST_LINGER.as_nanos() { Some("a lock lingers for at most 2 s") } else { None }
}

/// What a request does about a lock that somebody holds.
///
/// ```
/// use std::time::Duration;
/// use lock_runtime::{LockError, LockManager, OnBusy};
///
/// /// Only the newest export of a report is of use: it ends the one that runs.
/// async fn export(locks: &LockManager, report: u64) -> Result<(), LockError> {
///     let work = async { /* minutes of work */ };
///     locks.lock("export", &report).timeout(Duration::from_secs(10)).on_busy(OnBusy::Replace).run(work).await
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnBusy {
    /// It waits behind those who came before.
    #[default]
    Wait,
    /// It takes the lock from its holder, who is told to stop, and waits in front of all others until the holder has stopped. If a newer
    /// request comes meanwhile, it fails as the holder does: only the newest ever runs.
    Replace,
}

/// What happens to a body when its lock is lost.
///
/// ```
/// use lock_runtime::{LockError, LockManager, OnLost};
///
/// async fn settle(locks: &LockManager, account: u64) -> Result<(), LockError> {
///     let booking = async { /* two writes that belong together, each with the fencing token */ };
///     locks.lock("account", &account).fenced(true).on_lost(OnLost::Continue).run(booking).await
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLost {
    /// The body is never polled again; it is dropped, and the caller gets [`LockError::Lost`](crate::LockError::Lost).
    #[default]
    Cancel,
    /// The body runs to its end. Then the caller gets [`LockError::Lost`](crate::LockError::Lost) with `completed:
    /// true`. It is for bodies that must not be dropped half-way, and that protect their writes with a fencing token.
    Continue,
}
