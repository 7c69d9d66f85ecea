//! [`Sentinels`]: a master with replicas and three sentinels that watch over it, all belonging to one test.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::{FromRedisValue, RedisResult};
use rustix::process::{Pid, Signal, kill_process};

use crate::patience::eventually_blocking;
use crate::server::{Kind, Server, free_port};

/// What the sentinels call the master.
pub const NAME: &str = "till";
/// How many sentinels there are; two of them agree.
const SENTINELS: usize = 3;
/// After how many milliseconds of silence a sentinel takes a server for dead, when servers are stopped or ended on purpose.
const SILENCE: &str = "500";
/// The same as long as none is.
const PATIENT: &str = "60000";
/// How long a machine with other work may take for what is done in milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Servers of which one is the master, and their sentinels.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<Server>,
    sentinels: Vec<Sentinel>,
}

impl Sentinels {
    /// A master and this number of replicas, settled.
    #[must_use]
    pub fn start(replicas: usize) -> Self {
        Self::of(Kind::Redis, replicas)
    }

    /// As [`start`](Self::start), of a certain kind.
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
        // From now on a sentinel waits for four of these periods before it makes a server a replica that it knows as one, and that
        // says that it is the master. The leader of a failover tells the others as soon as it has seen the promotion itself. On a
        // busy machine that was later than four times 200 ms: a sentinel took the new master for one that had come back, and made
        // it a replica of the old one. Then no server was the master that all sentinels named.
        for sentinel in &all.sentinels {
            sentinel.debug(&[["publish-period", "1000"]]);
        }
        all
    }

    /// Waits until every sentinel that answers knows of all the others, and every replica follows the master.
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

    /// Whether all other servers are replicas of `master`, and up to date.
    fn follow(&self, master: usize) -> bool {
        let port = port(&self.servers[master].address());
        self.servers.iter().enumerate().all(|(index, server)| {
            let Ok(info) = server.try_ask::<String>("INFO replication") else { return false };
            let is_replica = info.contains("role:slave")
                && info.contains(&format!("master_port:{port}\r"))
                && info.contains("master_link_status:up");
            // A replica is sent what is written only once it has told for the first time how far it is.
            let told = info.matches("state=online").count() == self.servers.len() - 1 && !info.contains("offset=0,");
            if index == master { told } else { is_replica }
        })
    }

    /// For a manager: all sentinels, and the master's name.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(Sentinel::address).collect();
        format!("redis-sentinel://{}/{NAME}", hosts.join(","))
    }

    /// The index of the server that all sentinels name that answer; `None` while they do not agree.
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

    /// One of the servers; the first was the master at the start.
    #[must_use]
    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// One of the servers, to end it or to start it again: the sentinels replace a master that is silent from now on.
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

    /// One of the sentinels.
    #[must_use]
    pub fn sentinel(&self, index: usize) -> &Sentinel {
        &self.sentinels[index]
    }

    /// One of the sentinels, to end it.
    pub fn sentinel_mut(&mut self, index: usize) -> &mut Sentinel {
        &mut self.sentinels[index]
    }

    /// From now on the sentinels replace a master that is silent for half a second. Before, they take no server for dead, however
    /// long a busy machine lets the server wait: a failover that no test asked for changes which server is the master.
    pub fn doubt_the_servers(&self) {
        let silence = ["SET", NAME, "down-after-milliseconds", SILENCE];
        for sentinel in &self.sentinels {
            // One that is ended or frozen can't be told.
            let _ = sentinel.try_ask::<()>(&silence);
        }
    }

    /// Asks for a failover without a fault, and waits until the sentinels name another master, which is returned.
    #[must_use]
    pub fn fail_over(&self) -> usize {
        self.fail_over_by(0)
    }

    /// As [`fail_over`](Self::fail_over), by one of the sentinels.
    #[must_use]
    pub fn fail_over_by(&self, leader: usize) -> usize {
        let before = self.agreed();
        let port = port(&self.servers[before].address()).to_string();
        eventually_blocking("a sentinel carries out a failover", PATIENCE, || {
            let leader = &self.sentinels[leader];
            // Refused while another failover is under way, and given up when the replica was not seen for a moment: then again.
            // But not while this one is under way: what is asked for in the instant of its end is another failover, back again.
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

    /// From now on nothing that is written reaches the replicas.
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

    /// The replicas connect again.
    pub fn heal_replication(&self) {
        for server in &self.servers {
            let _ = server.try_ask::<()>("CONFIG SET masterauth ");
        }
    }
}

/// One sentinel; it ends with this value.
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

    /// One that watches over the server at the port `master`, with further settings.
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

    /// Waits until it answers, and makes it quick.
    fn hasten(&self) {
        // What else it does once in a second or ten, it does all the time: a test can't wait for it. A machine with other
        // work to do is no reason to stand aside for half a minute ("tilt"). `ping-period` has two bounds. A sentinel pings a
        // new master for the first time after one period, and counts that time as silence: a period as long as
        // `down-after-milliseconds` lets the sentinels leave the new master as soon as they have chosen it. And while the
        // master is down, what a replica told of itself counts for five periods, and is asked for each second.
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
        eventually_blocking("a sentinel takes its periods", PATIENCE, || self.try_ask::<()>(&words).is_ok());
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Whether it takes the master for one that is well.
    #[must_use]
    pub fn sees_master(&self) -> bool {
        self.view().is_ok_and(|view| view.get("flags").is_some_and(|flags| flags == "master"))
    }

    /// What it knows of the master.
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

    /// How many connections managers listen on to it.
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

    /// From now on it answers nobody but these users with their rights; not even this test.
    pub fn admit_only(&self, users: &[(String, String)]) {
        let mut connection = self.connection().expect("the sentinel answers");
        let mut tell = |user: &str, rights: &str| {
            let mut command = redis::cmd("ACL");
            command.arg("SETUSER").arg(user).arg(rights.split(' ').collect::<Vec<_>>());
            command.query::<()>(&mut connection).expect("the sentinel takes it");
        };
        for (user, rights) in users {
            tell(user, rights);
        }
        tell("default", "off");
    }

    /// Stops it in its tracks: connections stay open, nothing is answered.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Goes on after [`freeze`](Self::freeze).
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends it as a crash does.
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
