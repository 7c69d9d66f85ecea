//! [`Vote`]: whether a server of a quorum may take part in granting locks.
//!
//! A server that restarted may have forgotten a lock that is still held, and would help a second holder to a majority. So it has no vote
//! until every lease that it may have forgotten has ended. A marker on the server shows whether the server is new or has lost its data:
//! docs/protocol.md.

use std::time::Duration;

use lock_wire::CallError;
use redis::{FromRedisValue, Pipeline, Value};

use crate::mutex::Mutex;
use crate::store::voter::{Age, Eligibility, MARKER, Sighting};

/// What is known about a server process while the connection to it lives.
pub(super) struct Vote {
    pub(super) run_id: String,
    age: Age,
    max_lease: Duration,
    marker: Mutex<Option<String>>,
}

impl Vote {
    /// Adds the commands whose answers [`read`](Self::read) takes.
    pub(super) fn ask(pipeline: &mut Pipeline) {
        pipeline.cmd("INFO").arg("server").cmd("GET").arg(MARKER);
    }

    /// Reads the answers to the commands of [`ask`](Self::ask).
    pub(super) fn read(
        (info, marker): (Option<Value>, Option<Value>),
        max_lease: Duration,
        sighting: &Sighting,
    ) -> Result<Self, CallError> {
        let info: String = read(info, "+info")?;
        let marker = read(marker, "+get or ~cache_lock:quorum")?;
        let unknown = || CallError::Unsuitable("the server does not tell its run_id and uptime".to_owned());
        let (run_id, told) = read_info(&info).ok_or_else(unknown)?;
        let age = Age::new(sighting.first(&run_id), told);
        Ok(Self { run_id, age, max_lease, marker: Mutex::new(marker) })
    }

    pub(super) fn eligibility(&self) -> Eligibility {
        let marker = self.marker.lock();
        if marker.as_ref() == Some(&self.run_id) {
            return Eligibility::InService;
        }
        let left = self.age.left(self.max_lease);
        match &*marker {
            _ if left.is_zero() => Eligibility::Eligible { is_marked: marker.is_some() },
            None => Eligibility::Unmarked(left),
            Some(_) => Eligibility::Restarted(left),
        }
    }

    pub(super) fn mark(&self, marker: Option<String>) {
        *self.marker.lock() = marker;
    }
}

/// Reads a reply. The server refuses it to a user without the `right`.
fn read<T: FromRedisValue>(reply: Option<Value>, right: &str) -> Result<T, CallError> {
    let reply = reply.unwrap_or(Value::Nil).extract_error().map_err(|error| match error.code() {
        Some("NOPERM") => {
            CallError::Unsuitable(format!("its user lacks {right}; \"Rights\" in docs/protocol.md has the whole list"))
        }
        _ => error.into(),
    })?;
    redis::from_redis_value(reply).map_err(|_| CallError::Unsuitable("its answer can't be read".to_owned()))
}

/// The id and the age that the process reports.
fn read_info(info: &str) -> Option<(String, Duration)> {
    let field = |name| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let age = field("uptime_in_seconds")?.parse().ok()?;
    Some((field("run_id")?.to_owned(), Duration::from_secs(age)))
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn a_server_reports_its_identity_and_its_age() {
        let info = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\ntcp_port:6379\r\nuptime_in_seconds:61\r\n";
        assert_eq!(read_info(info), Some(("abc".to_owned(), Duration::from_secs(61))));
        assert_eq!(read_info("# Server\r\nrun_id:abc\r\n"), None);
        assert_eq!(read_info("uptime_in_seconds:x\r\nrun_id:abc\r\n"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_in_service_of_age_new_or_has_restarted() {
        let second = Duration::from_secs(1);
        let seen = Instant::now();
        let eligibility = |marker: Option<&str>| {
            let (age, marker) = (Age::new(seen, Duration::ZERO), Mutex::new(marker.map(str::to_owned)));
            Vote { run_id: "abc".to_owned(), age, max_lease: second, marker }.eligibility()
        };
        assert_eq!(eligibility(Some("abc")), Eligibility::InService);
        assert_eq!(eligibility(None), Eligibility::Unmarked(2 * second));
        assert_eq!(eligibility(Some("other")), Eligibility::Restarted(2 * second));
        tokio::time::advance(2 * second).await;
        assert_eq!(eligibility(Some("abc")), Eligibility::InService);
        assert_eq!(eligibility(None), Eligibility::Eligible { is_marked: false });
        assert_eq!(eligibility(Some("other")), Eligibility::Eligible { is_marked: true });
    }
}
