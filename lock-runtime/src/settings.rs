//! [`Settings`]: the settings of a manager, the bounds of what it and its requests may ask for, and the choices of a request.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Drift;
use crate::timing::LONGEST_LINGER;
use crate::token::{finish, take_buffer};
use crate::{InvalidKey, LockError, MAX_NAME_BYTES, key};

/// The shortest lease. A shorter one would end before a release can be sent on a usual network.
const SHORTEST_LEASE: Duration = Duration::from_millis(10);
/// The longest lease. A longer one comes from a mistaken unit: users of similar libraries got 10,000 s for 10 s.
const LONGEST_LEASE: Duration = Duration::from_secs(365 * 24 * 3600);

/// The shortest timeout of a command and of a connection. A shorter one would expire before any answer, even from the same machine.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);

/// The longest timeout of a command and of a connection. A longer one would be no limit. Multiples of it, and sums with an instant, can't
/// overflow.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);

/// The longest grace. A longer allowance for a late holder would be a lease of its own.
const LONGEST_GRACE: Duration = Duration::from_secs(3600);

/// The largest number of replicas to wait for. No server has more, so `WAIT` would always time out.
const MOST_REPLICAS: u32 = 100;

/// The least that follows the namespace in a name, in bytes: two colons, a prefix, a key.
const SHORTEST_NAME: usize = 4;

/// The longest label in bytes: people read it.
const LONGEST_LABEL: usize = 255;

/// The longest note of a request in bytes: people read it, and each token carries it.
const LONGEST_NOTE: usize = 128;

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) namespace: Option<String>,
    pub(crate) label: String,
    pub(crate) default_timeout: Duration,
    pub(crate) default_expire: Duration,
    pub(crate) default_max_hold: Option<Duration>,
    pub(crate) default_linger: Duration,
    pub(crate) default_lock_delay: Duration,
    /// How many leases may linger at once.
    pub(crate) max_lingering: usize,
    /// Why no lease may linger here; `None` if leases may.
    pub(crate) refuses_linger: Option<&'static str>,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    /// How long a server must be away before an acquire fails at once.
    pub(crate) fail_fast: Option<Duration>,
    /// How many replicas must confirm a grant, and within what time.
    pub(crate) min_replicas: Option<(u32, Duration)>,
    /// The longest lease that a request may ask for, including the grace.
    pub(crate) max_lease: Option<Duration>,
    /// A key of the protocol. No lock may have this name.
    pub(crate) reserved: Option<&'static str>,
    pub(crate) grace: Duration,
    pub(crate) max_clock_drift_ppm: u32,
    pub(crate) drain: Duration,
    /// A hold that lasts this long is reported.
    pub(crate) warn_held_for: Duration,
    pub(crate) max_waiters: usize,
    pub(crate) max_waiters_per_key: usize,
    /// What is wrong with the settings above, if the constructor could not return an error. Each request reports it.
    pub(crate) problem: Option<LockError>,
}

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
            default_max_hold: None,
            default_linger: Duration::ZERO,
            default_lock_delay: Duration::ZERO,
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
        if let Some(longest) = self.default_max_hold {
            refuse("default_max_hold", longest, problem_of_max_hold(longest.as_nanos()))?;
        }
        self.check_linger(self.default_linger)?;
        check_lock_delay("default_lock_delay", self.default_lock_delay)?;
        self.check_lease("default_expire", self.default_expire)
    }

    /// Refuses a linger time that is too long, or any at all where no lease may linger.
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

    /// The linger time of a request, or else the default, in hundredths of a second, rounded up.
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

    pub(crate) fn drift(&self) -> Drift {
        // `check` refuses a value out of bounds before these settings are used.
        Drift::of_ppm(self.max_clock_drift_ppm).unwrap_or(Drift::DEFAULT)
    }

    /// A lock's name in this manager's namespace. Fails with the problem of the settings if the manager could not report it itself.
    pub(crate) fn full_name(&self, name: Arc<str>) -> Result<Arc<str>, LockError> {
        if let Some(problem) = &self.problem {
            return Err(problem.clone());
        }
        let mut full = name;
        if let Some(namespace) = &self.namespace {
            let mut text = take_buffer();
            text.extend([namespace, ":", &full]);
            full = finish(text);
        }
        let reason = if full.len() > MAX_NAME_BYTES {
            InvalidKey::new(format!("the name is longer than {MAX_NAME_BYTES} bytes with its namespace"))
        } else if self.reserved.is_some_and(|reserved| *full == *reserved) {
            InvalidKey::new("a quorum keeps its own record under this name: use another prefix or key")
        } else {
            return Ok(full);
        };
        Err(LockError::InvalidKey { key: full.to_string(), reason })
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

/// Refuses a rest after a dropped body that is too long.
pub(crate) fn check_lock_delay(setting: &'static str, delay: Duration) -> Result<(), LockError> {
    let problem = "a rest of more than a year is a unit mistaken for another; nobody could lock until then";
    refuse(setting, delay, (delay > LONGEST_LEASE).then_some(problem))
}

fn refuse(setting: &'static str, time: Duration, problem: Option<&str>) -> Result<(), LockError> {
    problem.map_or(Ok(()), |problem| Err(LockError::setting(setting, format!("{problem} ({time:?})"))))
}

/// What is wrong with a longest hold of this many nanoseconds. It is `const`, like the next ones, so that the compiler checks constants.
pub(crate) const fn problem_of_max_hold(nanos: u128) -> Option<&'static str> {
    let too_long =
        "a hold of more than a year is a unit mistaken for another; leave `max_hold` out for a hold without a limit";
    let too_short = "a hold of less than 10 ms would end before it can be used";
    problem_of(nanos, ["a hold of zero is over before the body starts", too_short, too_long])
}

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

pub(crate) const fn problem_of_linger(nanos: u128) -> Option<&'static str> {
    if nanos > LONGEST_LINGER.as_nanos() { Some("a lock lingers for at most 2 s") } else { None }
}

pub(crate) fn problem_of_note(note: &str) -> Option<&'static str> {
    if note.len() > LONGEST_NOTE {
        return Some(
            "it is longer than 128 bytes, and a part of the lock's value: write who or what needs the lock, and no more",
        );
    }
    note.contains(char::is_control).then_some("it contains a control character, such as a line break: leave it out")
}

/// What a request does about a lock that is held.
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
    /// It waits behind earlier requests.
    #[default]
    Wait,
    /// It takes the lock from its holder, which is told to stop, and waits in front of all others until the holder has stopped. If a newer
    /// request arrives meanwhile, this one fails as the holder does: only the newest ever runs.
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
