//! The command line.

use std::ffi::OsString;
#[cfg(feature = "tls")]
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

/// The locks of `#[cache_lock]` from the command line.
///
/// NAME is a lock's name as it stands in Redis: `prefix:key`, with a namespace in front where there is one. The
/// colons and braces of a key are percent-escaped in it.
#[derive(Debug, Parser)]
#[command(name = "lockctl", version, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) place: PlaceArguments,
    /// Print JSON for programs.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 nothing to do, or a check of `doctor` failed; 2 a mistake on the command line; \
69 the server can't be reached, or refused; 74 the lock of `run` was lost; 75 the lock is busy. `run` exits with the \
status of its command; 126 and 127 say that the command could not be started; 128 and a number that a signal ended it.";

/// Where the locks are.
#[derive(Args, Debug)]
pub(crate) struct PlaceArguments {
    /// Where the locks are: redis://, rediss://, redis-sentinel://, redis-cluster:// or redlock://.
    #[arg(long, global = true, env = "REDIS_URL", hide_env_values = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// How long to wait for the connection.
    #[arg(long, global = true, default_value = "2s", value_parser = time, value_name = "TIME")]
    pub(crate) connect_timeout: Duration,
    #[cfg(feature = "tls")]
    #[command(flatten)]
    pub(crate) certificates: CertificateArguments,
}

/// The files for TLS, as redis-cli(1) names them.
#[cfg(feature = "tls")]
#[derive(Args, Debug)]
pub(crate) struct CertificateArguments {
    /// With TLS, trust the authorities in this PEM file. By default those of the operating system.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// With TLS, show the server the certificate in this PEM file.
    #[arg(long, global = true, requires = "key", value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// The private key of --cert, in a PEM file.
    #[arg(long, global = true, requires = "cert", value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List the locks that are held.
    List(List),
    /// Show who holds a lock, for how long, and who waits for it.
    Who {
        /// The lock's name, as `lockctl list` shows it: with the namespace, where there is one.
        name: String,
    },
    /// Show the locks that are held, again and again. Ctrl-C ends it.
    Watch(Watch),
    /// Take a lock from its holder. The holder's work is stopped.
    Release {
        /// The lock's name, as `lockctl list` shows it: with the namespace, where there is one.
        name: String,
        /// Say that you mean it: the holder may be in the middle of its work.
        #[arg(long, required = true)]
        force: bool,
        /// Of a lock that several share: take one permit, or the readers, of the holder with this label, and leave the others. It is the
        /// oldest permit that the holder has.
        #[arg(long, value_name = "LABEL")]
        holder: Option<String>,
        /// Also delete a value that does not look like a lock of this library: one of another client, without an expiry.
        #[arg(long, conflicts_with = "holder")]
        foreign: bool,
    },
    /// Run a command under a lock, as flock(1) does.
    Run(Run),
    /// Measure how fast locks are on this server.
    Bench(Bench),
    /// Check whether the server is fit for locks, and say what to change.
    Doctor {
        /// Use this server instead of --url.
        #[arg(value_name = "URL")]
        server: Option<String>,
        /// Begin the names of the doctor's own locks with this: the namespace, if the user may lock nothing else.
        #[arg(long, value_name = "NAME")]
        prefix: Option<String>,
    },
    /// Print completions for a shell.
    #[command(hide = true)]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the man page.
    #[command(hide = true)]
    Man,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct List {
    /// Only names that match, as `order:*`: `*`, `?` and `[abc]` as in Redis.
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
    /// Stop after this number of locks.
    #[arg(long, default_value_t = 1000, value_name = "COUNT")]
    pub(crate) limit: usize,
    /// Examine about this number of keys of each server at most. The server is asked for 1,000 at a time (SCAN).
    #[arg(long, default_value_t = 10_000_000, value_name = "COUNT")]
    pub(crate) max_keys: u64,
}

#[derive(Args, Debug)]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) list: List,
    /// The time between two updates.
    #[arg(long, default_value = "1s", value_parser = time, value_name = "TIME")]
    pub(crate) interval: Duration,
    /// End after this number of updates.
    #[arg(long, value_name = "COUNT")]
    pub(crate) count: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The lock's name.
    pub(crate) name: String,
    /// How long to wait for the lock, as 5s or 300ms; 0 tries once. Without it the wait has no end.
    #[arg(long, value_parser = time, value_name = "TIME")]
    pub(crate) timeout: Option<Duration>,
    /// How long the lock stays taken after this program is killed. It is renewed while the command runs.
    #[arg(long, default_value = "30s", value_parser = time, value_name = "TIME")]
    pub(crate) expire: Duration,
    /// How long a command may take to end after TERM when its lock is lost. Then it is killed.
    #[arg(long, default_value = "5s", value_parser = time, value_name = "TIME")]
    pub(crate) kill_after: Duration,
    /// The holder that others see. By default host:process id.
    #[arg(long)]
    pub(crate) label: Option<String>,
    /// Why the lock is held, for people who examine it: at most 128 bytes.
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// Use this server instead of --url.
    #[arg(value_name = "URL")]
    pub(crate) server: Option<String>,
    /// How long to measure each case.
    #[arg(long, default_value = "1s", value_parser = time, value_name = "TIME")]
    pub(crate) time: Duration,
    /// How many tasks lock at the same time.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "COUNT")]
    pub(crate) tasks: u32,
}

/// A time with its unit, or a number of seconds as flock(1) takes it.
fn time(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string());
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_time_has_a_unit_or_is_in_seconds() {
        assert_eq!(time("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("0"), Ok(Duration::ZERO));
        assert_eq!(time("2m"), Ok(Duration::from_mins(2)));
        assert!(time("-1").is_err() && time("soon").is_err());
    }
}
