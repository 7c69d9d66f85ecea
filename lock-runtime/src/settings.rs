//! [`Settings`]: the settings of a manager, and the checks that refuse impossible settings.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Drift;
use crate::lease_bounds::check_lease;
use crate::timing::LONGEST_LINGER;
use crate::{InvalidKey, LockError, MAX_NAME_BYTES, key};

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
    /// A hold that lasts for so long is told.
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

/// Refuses a timeout of a command or of a connection that is out of bounds.
fn check_timeout(setting: &'static str, timeout: Duration) -> Result<(), LockError> {
    if (SHORTEST_TIMEOUT..=LONGEST_TIMEOUT).contains(&timeout) {
        return Ok(());
    }
    let reason = if timeout < SHORTEST_TIMEOUT {
        format!("{timeout:?} would let nothing through: the shortest is {SHORTEST_TIMEOUT:?}")
    } else {
        format!("{timeout:?} would never doubt a connection that is dead: the longest is {LONGEST_TIMEOUT:?}")
    };
    Err(LockError::setting(setting, reason))
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
        check_timeout("command_timeout", self.command_timeout)?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        self.max_lease.map_or(Ok(()), |longest| check_lease("max_lease", longest))?;
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
        check_lease(setting, lease)?;
        match self.max_lease {
            Some(longest) if lease + self.grace > longest => {
                let grace =
                    if self.grace.is_zero() { String::new() } else { format!(" and a grace of {:?}", self.grace) };
                let reason =
                    format!("a lease of {lease:?}{grace} is longer than the manager's `max_lease`, {longest:?}");
                Err(LockError::setting(setting, reason))
            }
            _ => Ok(()),
        }
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
