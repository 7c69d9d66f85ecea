//! [`Cluster`]: the masters of a Redis Cluster, each with a connection once a lock that is in use lives there.
//!
//! Not the `redis` crate's `ClusterConnection`: that one connects to every master, sends what was not answered again
//! long after its caller gave up, and can lose the wake-up of a command that was redirected.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use redis::Cmd;
use tokio::time::sleep;

mod map;
pub(crate) mod seeds;
pub(crate) mod topology;

use map::{Node, slot_of};
use topology::Topology;

use super::endpoint::Endpoint;
use super::failure::CallError;
use super::link::{Called, Link};
use crate::clock::{Deadline, Moment};
use crate::store::{Events, Reach};

/// The first and the longest pause before a command is sent again whose slot is on its way to another master.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(25));

/// A master is not doubtful for leaving a command unanswered so briefly, or for two round trips.
const BRIEF: Duration = Duration::from_millis(100);

/// Connections to the masters of a cluster.
pub(crate) struct Cluster {
    topology: Arc<Topology>,
    /// Whose channel to listen on.
    process: Option<String>,
    events: OnceLock<Weak<dyn Events>>,
    links: Mutex<HashMap<Node, Arc<Link>>>,
    /// Told of each master that a link is made to.
    on_new_master: OnceLock<OnNewMaster>,
}

type OnNewMaster = Box<dyn Fn(Node) + Send + Sync>;

/// What a failed command means.
enum Verdict {
    /// The slot is another master's now.
    Moved(Node),
    /// The slot is on its way, and this command is for its next master.
    Ask(Node),
    /// The slot is on its way, and some of the command's keys are here and some there.
    Again,
    /// Perhaps another master has taken the place of this one.
    Doubt,
    Final,
}

impl Cluster {
    pub(crate) fn new(topology: &Arc<Topology>, process: Option<&str>) -> Arc<Self> {
        Arc::new(Self {
            topology: Arc::clone(topology),
            process: process.map(str::to_owned),
            events: OnceLock::new(),
            links: Mutex::default(),
            on_new_master: OnceLock::new(),
        })
    }

    /// From now on `keeper` connects to each master that this one connects to, in tasks that it hands to `spawn`: the release
    /// of a guard that is dropped at once should not have to wait for a connection.
    pub(crate) fn mirror_connections(
        &self,
        keeper: &Arc<Self>,
        spawn: impl Fn(BoxFuture<'static, ()>) + Send + Sync + 'static,
    ) {
        let keeper = Arc::clone(keeper);
        let on_new_master = move |node| {
            let keeper = Arc::clone(&keeper);
            spawn(Box::pin(async move {
                if let Ok(link) = keeper.link(&node) {
                    // Whoever needs it is told why it failed.
                    let _ = link.connect().await;
                }
            }));
        };
        // Once, by the builder.
        let _ = self.on_new_master.set(Box::new(on_new_master));
    }

    pub(super) async fn connect(&self) -> Result<(), CallError> {
        self.topology.load().await
    }

    pub(super) fn attach(&self, events: Weak<dyn Events>) {
        self.topology.attach(Weak::clone(&events));
        // Attached once, by the engine, before the first command makes a link.
        let _ = self.events.set(events);
    }

    pub(super) fn server_of(&self, key: &str) -> usize {
        self.topology.index(key)
    }

    fn links(&self) -> MutexGuard<'_, HashMap<Node, Arc<Link>>> {
        // Nothing that can panic runs under this lock.
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link to a node, made when there is none.
    fn link(&self, node: &Node) -> Result<Arc<Link>, CallError> {
        let mut links = self.links();
        if let Some(link) = links.get(node) {
            return Ok(Arc::clone(link));
        }
        let Topology { drift, command_timeout, connect_timeout, .. } = *self.topology;
        let endpoint = Endpoint::Node(Box::new(self.topology.client(node)?));
        let link = Link::new(endpoint, self.process.as_deref(), None, None, drift, (command_timeout, connect_timeout));
        let (topology, own) = (Arc::downgrade(&self.topology), node.clone());
        link.restrict(Box::new(move |key| topology.upgrade().is_some_and(|topology| topology.lives_at(key, &own))));
        if let Some(events) = self.events.get() {
            link.attach(Weak::clone(events));
        }
        // Those to servers that are no masters any more.
        links.retain(|node, _| self.topology.is_master(node));
        links.insert(node.clone(), Arc::clone(&link));
        drop(links);
        if let Some(tell) = self.on_new_master.get() {
            tell(node.clone());
        }
        if self.process.is_none() {
            let (link, deadline) = (Arc::clone(&link), Deadline::after(connect_timeout));
            tokio::spawn(async move { link.warn_of_eviction(deadline).await });
        }
        Ok(link)
    }

    /// Sends a command to the master of the key's slot, whichever it turns out to be.
    pub(super) async fn call(
        &self,
        key: &str,
        command: &(dyn Fn(&Link) -> Cmd + Send + Sync),
        deadline: Deadline,
    ) -> Result<Called, CallError> {
        let mut was_sent = false;
        let outcome = self.send(key, command, deadline, &mut was_sent).await;
        // What came before the last try counts as well.
        outcome.map_err(|error| if was_sent { error.after_sending() } else { error })
    }

    /// Notes in `was_sent` whether the command was sent to any master.
    async fn send(
        &self,
        key: &str,
        command: &(dyn Fn(&Link) -> Cmd + Send + Sync),
        mut deadline: Deadline,
        was_sent: &mut bool,
    ) -> Result<Called, CallError> {
        let slot = slot_of(key);
        // Being sent here and there takes no longer than one answer may.
        let end = deadline.min_at(Deadline::after(self.topology.command_timeout), deadline.start());
        let mut pause = PAUSES.0;
        let (mut asking, mut repeated) = (None, false);
        // What a master said. The last try may be cut short, and know less of the reason.
        let mut refused: Option<CallError> = None;
        loop {
            let (node, is_asking, was_doubtful) = if let Some(node) = asking.take() {
                (node, true, false)
            } else {
                let (node, was_doubtful) = self.master(slot, deadline).await.map_err(CallError::before_sending)?;
                (node, false, was_doubtful)
            };
            deadline = deadline.counted_from(Moment::now());
            let link = self.link(&node).map_err(CallError::before_sending)?;
            // A server that has gone without a word would have all the time there is for a new connection.
            let limit = if was_doubtful { deadline.min_at(end, deadline.start()) } else { deadline };
            let outcome = match link.ready(limit).await {
                // Only now is the server's clock known, by which an ask ends.
                Ok(deadline) if is_asking => link.call_asking(command(&link), deadline).await,
                Ok(deadline) => link.call(command(&link), deadline).await,
                Err(error) => Err(error),
            };
            let error = match outcome {
                Ok(called) => {
                    if was_doubtful {
                        self.topology.trust(&node);
                    }
                    return Ok(Called { repeated: called.repeated || repeated, ..called });
                }
                Err(CallError::UnknownScript { repeated: before }) => {
                    return Err(CallError::UnknownScript { repeated: before || repeated });
                }
                Err(error) => error,
            };
            *was_sent |= error.reach() != Reach::Unsent;
            match verdict(&error, &node, BRIEF.max(link.round_trip() * 2)) {
                Verdict::Final => return Err(refused.filter(|_| error.is_out_of_time()).unwrap_or(error)),
                Verdict::Moved(to) => {
                    self.topology.moved(slot, &to);
                    // Two that each name the other will agree soon.
                    if refused.is_some() {
                        again(&mut pause, end, &error).await?;
                    }
                    refused = Some(error);
                }
                Verdict::Ask(to) => asking = Some(to),
                Verdict::Again => {
                    again(&mut pause, end, &error).await?;
                    refused = Some(error);
                }
                Verdict::Doubt => {
                    self.topology.doubt(&node);
                    let error = error.of(&format!("the node {node}"));
                    if deadline.has_passed() {
                        return Err(refused.unwrap_or(error));
                    }
                    self.topology.look_for(slot, deadline.remaining()).await;
                    if self.topology.master(slot).is_none_or(|(master, _)| master == node) || deadline.has_passed() {
                        return Err(error);
                    }
                    repeated = true;
                }
            }
        }
    }

    /// The slot's master, and whether it is doubtful: then the other nodes are asked first.
    async fn master(&self, slot: u16, deadline: Deadline) -> Result<(Node, bool), CallError> {
        match self.topology.master(slot) {
            Some((node, None)) => return Ok((node, false)),
            // It was only slow to connect to.
            Some((node, Some(since))) if self.has_connected_to(&node, since) => {
                self.topology.trust(&node);
                return Ok((node, false));
            }
            _ => self.topology.look_for(slot, deadline.remaining() / 2).await,
        }
        let nobody = || CallError::Unsuitable("no master serves the lock's hash slot".to_owned());
        let (node, doubtful) = self.topology.master(slot).ok_or_else(nobody)?;
        Ok((node, doubtful.is_some()))
    }

    fn has_connected_to(&self, node: &Node, since: Moment) -> bool {
        self.links().get(node).is_some_and(|link| link.was_made_after(since))
    }

    /// How long the farthest of the masters takes to answer.
    pub(super) fn round_trip(&self) -> Duration {
        self.links().values().map(|link| link.round_trip()).max().unwrap_or_default()
    }

    /// Whether the connection for a key broke.
    pub(super) fn is_cut_off(&self, key: &str) -> bool {
        let Some((node, _)) = self.topology.master(slot_of(key)) else { return false };
        self.links().get(&node).is_some_and(|link| link.was_used() && !link.is_connected())
    }

    /// Makes the connections that broke.
    pub(super) async fn connect_again(&self, deadline: Deadline) {
        let links: Vec<_> = self.links().values().filter(|link| link.was_used()).cloned().collect();
        join_all(links.iter().map(|link| link.connect_again(deadline))).await;
    }

    /// As [`Link::send_behind`].
    pub(super) fn send_behind(&self, key: &str, command: &Cmd) {
        let Some((node, _)) = self.topology.master(slot_of(key)) else { return };
        let link = self.links().get(&node).cloned();
        if let Some(link) = link {
            link.send_behind(command);
        }
    }

    /// Finds out which of the connections are alive.
    pub(super) async fn heartbeat(&self, deadline: Deadline) {
        let links: Vec<_> = self.links().values().filter(|link| link.is_connected()).cloned().collect();
        join_all(links.iter().map(|link| link.heartbeat(deadline))).await;
    }
}

/// Waits a little before another try; fails when there is no time for one.
async fn again(pause: &mut Duration, end: Deadline, error: &CallError) -> Result<(), CallError> {
    if end.remaining() <= *pause {
        return Err(error.clone());
    }
    sleep(*pause).await;
    *pause = (*pause * 2).min(PAUSES.1);
    Ok(())
}

fn verdict(error: &CallError, at: &Node, brief: Duration) -> Verdict {
    let error = match error {
        CallError::Failed(error) => error,
        CallError::Unsent(error) => return verdict(error, at, brief),
        // Whoever waited so briefly knows nothing of the server.
        CallError::Silent(limit) | CallError::NoConnection(limit) if *limit < brief => return Verdict::Final,
        _ => return Verdict::Doubt,
    };
    let to = error.redirect_node().and_then(|(to, _)| Node::read(to, at));
    match (error.code(), to) {
        (Some("MOVED"), Some(to)) => Verdict::Moved(to),
        (Some("ASK"), Some(to)) => Verdict::Ask(to),
        (Some("TRYAGAIN"), _) => Verdict::Again,
        (Some("CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "READONLY"), _) => Verdict::Doubt,
        _ if error.is_io_error() => Verdict::Doubt,
        _ => Verdict::Final,
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cluster").field(&self.topology).finish()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn said_of(error: &CallError) -> String {
        let at = Node { host: "here".into(), port: 7 };
        match verdict(error, &at, BRIEF) {
            Verdict::Moved(to) => format!("moved to {to}"),
            Verdict::Ask(to) => format!("on its way to {to}"),
            Verdict::Again => "again".to_owned(),
            Verdict::Doubt => "doubt".to_owned(),
            Verdict::Final => "final".to_owned(),
        }
    }

    #[test]
    fn what_a_node_refuses_says_where_to_go_whether_to_wait_or_that_it_is_doubtful() {
        for (text, said) in [
            ("MOVED 7 there:8", "moved to there:8"),
            ("MOVED 7 :8", "moved to here:8"),
            ("ASK 7 there:8", "on its way to there:8"),
            ("TRYAGAIN Multiple keys request during rehashing of slot", "again"),
            ("CLUSTERDOWN The cluster is down", "doubt"),
            ("LOADING Redis is loading the dataset in memory", "doubt"),
            ("MASTERDOWN Link with MASTER is down", "doubt"),
            ("READONLY You can't write against a read only replica.", "doubt"),
            ("NOPERM User has no permissions", "final"),
            ("MOVED nowhere", "final"),
        ] {
            let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
            assert_eq!(said_of(&reply.extract_error().unwrap_err().into()), said, "{text}");
        }
    }

    #[test]
    fn a_node_that_does_not_answer_is_doubtful_unless_the_time_was_brief() {
        let broken = redis::RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(said_of(&broken.into()), "doubt");
        for error in [CallError::Silent, CallError::NoConnection] {
            assert_eq!(said_of(&error(BRIEF)), "doubt");
            assert_eq!(said_of(&error(BRIEF / 2)), "final");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_on_its_way_is_waited_for_ever_longer_and_not_beyond_the_end() {
        let (mut pause, error) = (PAUSES.0, CallError::Silent(BRIEF));
        let (start, end) = (Instant::now(), Deadline::after(Duration::from_mins(1)));
        for passed in [5, 15, 35, 60] {
            again(&mut pause, end, &error).await.unwrap();
            assert!(start.elapsed().abs_diff(Duration::from_millis(passed)) < Duration::from_millis(5), "{passed}");
        }
        assert!(again(&mut pause, Deadline::after(PAUSES.1 / 2), &error).await.is_err());
        assert!(start.elapsed() < Duration::from_millis(65), "{:?}", start.elapsed());
    }
}
