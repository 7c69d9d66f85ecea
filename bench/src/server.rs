//! [`Server`]: a Redis of the benchmark's own, alone or as part of a cluster.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::Connection;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tempfile::TempDir;

use crate::process::Usage;

/// A server on a free port of this host; it ends with this value.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    port: u16,
    all_cores: CpuSet,
    _folder: TempDir,
}

/// The server's counts since the last reset, for one command.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Calls {
    pub(crate) count: f64,
    pub(crate) micros: f64,
}

impl Server {
    /// Starts the `program`, with further options.
    pub(crate) fn start(program: &Path, options: &[&str]) -> Result<Self, String> {
        let name = program.display();
        let folder = TempDir::new().map_err(|error| format!("no folder for the server: {error}"))?;
        let port = free_port()?;
        let process = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            // A thousand waiting clients of some contestants need one connection each.
            .args(["--maxclients", "20000", "--dir"])
            .arg(folder.path())
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{name} can't be started; is it installed? {error}"))?;
        let all_cores = sched_getaffinity(None).map_err(|error| error.to_string())?;
        let server = Self { process, port, all_cores, _folder: folder };
        let patience = Instant::now() + Duration::from_secs(10);
        while let Err(problem) = server.ask::<()>(&redis::cmd("PING")) {
            if Instant::now() > patience {
                return Err(format!("{name} does not answer: {problem}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The resources that it has used so far.
    pub(crate) fn usage(&self) -> Usage {
        Usage::of(self.process.id())
    }

    fn connection(&self) -> Result<Connection, String> {
        let client = redis::Client::open(format!("redis://{}", self.address())).map_err(|error| error.to_string())?;
        client.get_connection().map_err(|error| error.to_string())
    }

    pub(crate) fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, String> {
        command.query(&mut self.connection()?).map_err(|error| error.to_string())
    }

    /// Its name and version.
    pub(crate) fn version(&self) -> String {
        let info: String = self.ask(redis::cmd("INFO").arg("server")).unwrap_or_default();
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        match field("valkey_version:") {
            Some(version) => format!("Valkey {version}"),
            None => format!("Redis {}", field("redis_version:").unwrap_or_default()),
        }
    }

    /// Empties the server, and disconnects the clients that the last contestant left behind.
    pub(crate) fn clear(&self) -> Result<(), String> {
        self.ask::<redis::Value>(redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").arg("SKIPME").arg("yes"))?;
        self.ask::<redis::Value>(&redis::cmd("FLUSHALL")).map(drop)
    }

    pub(crate) fn reset_counts(&self) -> Result<(), String> {
        self.ask::<()>(redis::cmd("CONFIG").arg("RESETSTAT"))
    }

    /// Calls by command, including those that scripts made.
    pub(crate) fn calls(&self) -> Result<BTreeMap<String, Calls>, String> {
        let info: String = self.ask(redis::cmd("INFO").arg("commandstats"))?;
        Ok(info.lines().filter_map(read_calls).collect())
    }

    /// Keeps the server on the first core, or lets it run anywhere.
    pub(crate) fn pin(&self, pinned: bool) {
        let cores = if pinned { first_core() } else { self.all_cores };
        // Where pinning is refused, the "pinned" case is merely not pinned.
        let _ = sched_setaffinity(self.pid(), &cores);
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.process.id()).ok().and_then(Pid::from_raw)
    }

    /// Stops it until the value is dropped: connections stay open, and nothing is answered.
    pub(crate) fn hang(&self) -> Result<Hanging, String> {
        let pid = self.pid().ok_or("the server has no process id")?;
        kill_process(pid, Signal::STOP).map_err(|error| format!("the server can't be stopped: {error}"))?;
        Ok(Hanging(pid))
    }
}

/// A server hangs for as long as this lives.
#[derive(Debug)]
pub(crate) struct Hanging(Pid);

impl Drop for Hanging {
    fn drop(&mut self) {
        // It still exists: only its owner ends it.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// A port that nobody listens on at the moment.
pub(crate) fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

/// The core for pinned cases.
pub(crate) fn first_core() -> CpuSet {
    let mut cores = CpuSet::new();
    cores.set(0);
    cores
}

/// `cmdstat_set:calls=3,usec=17,usec_per_call=5.67,…`
fn read_calls(line: &str) -> Option<(String, Calls)> {
    let (name, fields) = line.trim().strip_prefix("cmdstat_")?.split_once(':')?;
    let field = |wanted: &str| {
        fields.split(',').find_map(|field| field.strip_prefix(wanted)?.strip_prefix('=')?.parse::<f64>().ok())
    };
    Some((name.to_owned(), Calls { count: field("calls")?, micros: field("usec")? }))
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
