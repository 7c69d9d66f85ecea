//! [`Sentinels`]: one test's own master, its replicas, and three sentinels that watch it.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::{FromRedisValue, RedisResult};
use rustix::process::{Pid, Signal, kill_process};

use crate::patience::eventually_blocking;
use crate::server::{Kind, Server, free_port};

/// The sentinels' name for the master.
pub const NAME: &str = "till";
/// How many sentinels there are; two of them have to agree.
const SENTINELS: usize = 3;
/// After this many milliseconds of silence a sentinel considers a server dead, in tests that stop or kill servers.
const SILENCE: &str = "500";
/// The same time in tests that don't.
const PATIENT: &str = "60000";
/// What takes milliseconds may take this long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A master, its replicas, and their sentinels.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<Server>,
    sentinels: Vec<Sentinel>,
}

impl Sentinels {
    /// A master and this many replicas, settled.
    #[must_use]
    pub fn start(replicas: usize) -> Self {
        Self::of(Kind::Redis, replicas)
    }

    /// [`start`](Self::start) for servers of this kind.
    #[must_use]
    pub fn of(kind: Kind, replicas: usize) -> Self {
        let options = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];
        let mut servers = vec![Server::of(kind, &options)];
        let port = port(&servers[0].address());
        for _ in 0..replicas {
            let of_master = ["--replicaof", "127.0.0.1", &port.to_string()];
            servers.push(Server::of(kind, &[&options[..], &of_master].concat()));
        }
        let sentinels = (0..SENTINELS).map(|_| Sentinel::start(kind, port)).collect();
        let all = Self { servers, sentinels };
        all.settle();
        // A sentinel waits for four of these periods before it demotes a server that it knows as a replica but that reports itself as
        // the master. The leader of a failover informs the others when it has seen the promotion itself. On a busy machine that took
        // longer than four times 200 ms: a sentinel took the new master for a returned old one, and made it a replica of the old one.
        // Then the server that all sentinels named was no master.
        for sentinel in &all.sentinels {
            sentinel.debug(&[["publish-period", "1000"]]);
        }
        all
    }

    /// Waits until every running sentinel knows all others, and every replica follows the master.
    pub fn settle(&self) {
        eventually_blocking("the sentinels and replicas settle", PATIENCE, || self.is_settled());
    }

    fn is_settled(&self) -> bool {
        let replicas = self.servers.len() - 1;
        let alive: Vec<_> = self.sentinels.iter().filter_map(|sentinel| sentinel.view().ok()).collect();
        let agree = alive.iter().all(|view| {
            let number = |field: &str| view.get(field).and_then(|text| text.parse::<usize>().ok());
            view.get("flags").is_some_and(|flags| flags == "master")
                && view.get("port") == alive[0].get("port")
                && number("num-slaves") == Some(replicas)
                && number("num-other-sentinels") == Some(SENTINELS - 1)
        });
        agree && !alive.is_empty() && self.master().is_some_and(|master| self.follow(master))
    }

    /// Whether all other servers are up-to-date replicas of `master`.
    fn follow(&self, master: usize) -> bool {
        let port = port(&self.servers[master].address());
        self.servers.iter().enumerate().all(|(index, server)| {
            let Ok(info) = server.try_ask::<String>("INFO replication") else { return false };
            let is_replica = info.contains("role:slave")
                && info.contains(&format!("master_port:{port}\r"))
                && info.contains("master_link_status:up");
            let has_all = info.matches("state=online").count() == self.servers.len() - 1;
            if index == master { has_all && server.is_replicated() } else { is_replica }
        })
    }

    /// The URL for managers: all sentinels, and the master's name.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(Sentinel::address).collect();
        format!("redis-sentinel://{}/{NAME}", hosts.join(","))
    }

    /// The index of the server that all running sentinels name; `None` while they disagree.
    #[must_use]
    pub fn master(&self) -> Option<usize> {
        let mut named = self.sentinels.iter().filter_map(|sentinel| self.named_by(sentinel));
        let first = named.next()?;
        named.all(|other| other == first).then_some(first)
    }

    fn named_by(&self, sentinel: &Sentinel) -> Option<usize> {
        let (host, port): (String, u16) = sentinel.try_ask(&["GET-MASTER-ADDR-BY-NAME", NAME]).ok()?;
        self.servers.iter().position(|server| server.address() == format!("{host}:{port}"))
    }

    /// A server by its index; server 0 was the master at the start.
    #[must_use]
    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// A server by its index, to kill or restart it. From now on the sentinels replace a silent master.
    pub fn server_mut(&mut self, index: usize) -> &mut Server {
        self.doubt_the_servers();
        &mut self.servers[index]
    }

    /// All of the servers.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter()
    }

    /// The server that is the master, once the sentinels agree.
    #[must_use]
    pub fn master_server(&self) -> &Server {
        &self.servers[self.agreed()]
    }

    /// The index of the server that is the master, once the sentinels agree.
    #[must_use]
    pub fn agreed(&self) -> usize {
        let mut master = None;
        eventually_blocking("the sentinels agree", PATIENCE, || {
            master = self.master();
            master.is_some()
        });
        master.expect("they agree")
    }

    /// A sentinel by its index.
    #[must_use]
    pub fn sentinel(&self, index: usize) -> &Sentinel {
        &self.sentinels[index]
    }

    /// A sentinel by its index, to kill it.
    pub fn sentinel_mut(&mut self, index: usize) -> &mut Sentinel {
        &mut self.sentinels[index]
    }

    /// From now on the sentinels replace a master that is silent for half a second. Until then they consider no server dead, however long
    /// a busy machine delays it: an unplanned failover would change the master under the test.
    pub fn doubt_the_servers(&self) {
        let silence = ["SET", NAME, "down-after-milliseconds", SILENCE];
        for sentinel in &self.sentinels {
            // A sentinel that is killed or frozen can't take the setting.
            let _ = sentinel.try_ask::<()>(&silence);
        }
    }

    /// Asks for a failover without a fault, and waits until the sentinels name another master, which is returned.
    #[must_use]
    pub fn fail_over(&self) -> usize {
        self.fail_over_by(0)
    }

    /// [`fail_over`](Self::fail_over) by this sentinel.
    #[must_use]
    pub fn fail_over_by(&self, leader: usize) -> usize {
        let before = self.agreed();
        let port = port(&self.servers[before].address()).to_string();
        eventually_blocking("a sentinel carries out a failover", PATIENCE, || {
            let leader = &self.sentinels[leader];
            // Refused during another failover, and given up if the replica was not seen for a moment: then ask again. But don't ask while
            // this failover is under way: a request at the instant of its end starts another failover, back to the old master.
            let is_idle = |view: HashMap<String, String>| {
                view.get("flags").is_some_and(|flags| flags == "master") && view.get("port") == Some(&port)
            };
            if leader.view().is_ok_and(is_idle) {
                let _ = leader.try_ask::<()>(&["FAILOVER", NAME]);
            }
            self.master().is_some_and(|master| master != before)
        });
        self.agreed()
    }

    /// Waits until the sentinels name another master than `before`.
    #[must_use]
    pub fn await_another(&self, before: usize) -> usize {
        let mut now = before;
        eventually_blocking("the sentinels choose another master", PATIENCE, || {
            now = self.master().unwrap_or(before);
            now != before
        });
        now
    }

    /// From now on no write reaches the replicas.
    pub fn cut_replication(&self) {
        let master = self.agreed();
        for (_, replica) in self.servers.iter().enumerate().filter(|(index, _)| *index != master) {
            // The master has no password, so it refuses one.
            replica.tell("CONFIG SET masterauth wrong");
        }
        self.servers[master].tell("CLIENT KILL TYPE replica");
        eventually_blocking("the replicas are cut off", PATIENCE, || {
            self.servers[master].ask::<String>("INFO replication").contains("connected_slaves:0")
        });
    }

    /// Lets the replicas connect again.
    pub fn heal_replication(&self) {
        for server in &self.servers {
            let _ = server.try_ask::<()>("CONFIG SET masterauth ");
        }
    }
}

/// One sentinel; dropping this value stops it.
#[derive(Debug)]
pub struct Sentinel {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Sentinel {
    fn start(kind: Kind, master: u16) -> Self {
        Self::with(kind, master, &[])
    }

    /// A sentinel that watches the server at the port `master`, with more settings.
    #[must_use]
    pub fn with(kind: Kind, master: u16, options: &[(&str, String)]) -> Self {
        let options: Vec<_> = options.iter().map(|(name, value)| format!("{name} {value}\n")).collect();
        let options = options.concat();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = free_port();
        let file = folder.path().join("sentinel.conf");
        let settings = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {NAME} 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds {NAME} {PATIENT}\nsentinel failover-timeout {NAME} 3000\n{options}",
            folder.path().display()
        );
        std::fs::write(&file, settings).expect("a file in the own folder");
        let child = Command::new(kind.program())
            .arg(&file)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server is installed (test.sh installs it)");
        let sentinel = Self { child, port, _folder: folder };
        sentinel.hasten();
        sentinel
    }

    /// Waits until it answers, then shortens its periods.
    fn hasten(&self) {
        // A sentinel does some things once in one or ten seconds; a test can't wait for that. Nor may a busy machine make it pause for
        // half a minute ("tilt"). `ping-period` has two bounds. A sentinel first pings a new master after one period, and counts that
        // time as silence: with a period as long as `down-after-milliseconds` the sentinels leave the new master as soon as they have
        // chosen it. And while the master is down, a replica's `INFO` is valid for five periods, and requested each second.
        let hasten = [
            ["info-period", "200"],
            ["publish-period", "200"],
            ["ask-period", "200"],
            ["tilt-period", "500"],
            ["ping-period", "250"],
        ];
        self.debug(&hasten);
    }

    /// Sets its periods, in milliseconds.
    fn debug(&self, periods: &[[&str; 2]]) {
        let words = [&["DEBUG"][..], periods.as_flattened()].concat();
        eventually_blocking("a sentinel accepts its periods", PATIENCE, || self.try_ask::<()>(&words).is_ok());
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Whether it considers the master healthy.
    #[must_use]
    pub fn sees_master(&self) -> bool {
        self.view().is_ok_and(|view| view.get("flags").is_some_and(|flags| flags == "master"))
    }

    /// What it knows about the master.
    fn view(&self) -> RedisResult<HashMap<String, String>> {
        self.try_ask(&["MASTER", NAME])
    }

    fn try_ask<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        redis::cmd("SENTINEL").arg(words).query(&mut self.connection()?)
    }

    fn connection(&self) -> RedisResult<redis::Connection> {
        const LIMIT: Duration = Duration::from_secs(1);
        let client = redis::Client::open(format!("redis://{}", self.address()))?;
        let connection = client.get_connection_with_timeout(LIMIT)?;
        connection.set_read_timeout(Some(LIMIT))?;
        Ok(connection)
    }

    /// The number of managers' connections that listen to it.
    #[must_use]
    pub fn listeners(&self) -> usize {
        let mut connection = self.connection().expect("the sentinel answers");
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut connection).expect("the sentinel answers");
        list.lines().filter(|line| line.contains("resp=3") && !line.contains(" sub=0 ")).count()
    }

    /// Runs one `SENTINEL` command, such as `["SET", NAME, "down-after-milliseconds", "60000"]`.
    pub fn tell(&self, words: &[&str]) {
        self.try_ask::<()>(words).expect("the sentinel answers");
    }

    /// From now on it answers only these users, with their rights; it refuses even this test.
    pub fn admit_only(&self, users: &[(String, String)]) {
        let mut connection = self.connection().expect("the sentinel answers");
        let mut tell = |user: &str, rights: &str| {
            let mut command = redis::cmd("ACL");
            command.arg("SETUSER").arg(user).arg(rights.split(' ').collect::<Vec<_>>());
            command.query::<()>(&mut connection).expect("the sentinel accepts it");
        };
        for (user, rights) in users {
            tell(user, rights);
        }
        tell("default", "off");
    }

    /// Suspends it: connections stay open, and it answers no command.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues a sentinel that [`freeze`](Self::freeze) suspended.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, like a crash.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process id");
        kill_process(pid, signal).expect("a signal to the own child");
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.kill();
    }
}

fn port(address: &str) -> u16 {
    address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
}
