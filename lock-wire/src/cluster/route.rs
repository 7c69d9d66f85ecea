//! [`Route`]: one command on its way to the master of its slot.

use std::sync::Arc;
use std::time::Duration;

use super::Cluster;
use super::map::Node;
use crate::clock::{Deadline, Moment};
use crate::failure::CallError;
use crate::link::{Again, Called, Command, Link, Outgoing};

/// A master is not doubtful because it left a command unanswered for less than this, or for less than two round trips.
const BRIEF: Duration = Duration::from_millis(100);

/// One command on its way, and where it was so far.
pub(super) struct Route<'a> {
    cluster: &'a Cluster,
    slot: u16,
    /// Redirections together take no longer than one answer may take.
    again: Again,
    /// The next master of a slot that is on its way: the next try goes there.
    asking: Option<Node>,
    /// Whether a connection has broken under the command.
    was_cut: bool,
}

/// Where one try goes.
struct Stop {
    node: Node,
    is_asking: bool,
    was_doubtful: bool,
}

/// What a failed command means.
enum Verdict {
    /// The slot is another master's now.
    Moved(Node),
    /// The slot is on its way, and this command is for its next master.
    Ask(Node),
    /// The slot is on its way, and some of the command's keys are here and some there.
    Again,
    /// The connection broke.
    Cut,
    /// Perhaps another master has taken the place of this one.
    Doubt,
    Final,
}

impl<'a> Route<'a> {
    pub(super) fn new(cluster: &'a Cluster, slot: u16, deadline: Deadline) -> Self {
        let again = Again::new(deadline, cluster.topology.common.command_timeout);
        Self { cluster, slot, again, asking: None, was_cut: false }
    }

    /// Sends the command until a master answers, or no other try can help.
    pub(super) async fn follow<C: Command>(
        mut self,
        command: &(dyn Fn(&Link) -> Outgoing<C> + Send + Sync),
        deadline: Deadline,
    ) -> Result<Called, CallError> {
        let outcome = self.try_masters(command, deadline).await;
        self.again.conclude(outcome)
    }

    async fn try_masters<C: Command>(
        &mut self,
        command: &(dyn Fn(&Link) -> Outgoing<C> + Send + Sync),
        mut deadline: Deadline,
    ) -> Result<Called, CallError> {
        loop {
            let stop = self.next_stop(deadline).await.map_err(CallError::before_sending)?;
            deadline = deadline.counted_from(Moment::now());
            let link = self.cluster.link(&stop.node);
            match self.send(&stop, &link, command, deadline).await {
                Ok(called) => {
                    if stop.was_doubtful {
                        self.cluster.topology.trust(&stop.node);
                    }
                    return Ok(called);
                }
                Err(error @ CallError::UnknownScript { .. }) => return Err(error),
                Err(error) => self.on_error(error, &stop.node, &link, deadline).await?,
            }
        }
    }

    async fn next_stop(&mut self, deadline: Deadline) -> Result<Stop, CallError> {
        if let Some(node) = self.asking.take() {
            return Ok(Stop { node, is_asking: true, was_doubtful: false });
        }
        let (node, was_doubtful) = self.cluster.master(self.slot, deadline).await?;
        Ok(Stop { node, is_asking: false, was_doubtful })
    }

    async fn send<C: Command>(
        &self,
        stop: &Stop,
        link: &Arc<Link>,
        command: &(dyn Fn(&Link) -> Outgoing<C> + Send + Sync),
        deadline: Deadline,
    ) -> Result<Called, CallError> {
        // Otherwise a connection to a server that is gone without a word would use up all the time. A server that is far away has the
        // time to answer, also after a look for the master.
        let limit = if stop.was_doubtful { deadline.min_at(self.end_at(link), deadline.start()) } else { deadline };
        // The command is made when there is a connection: only then is the server's clock known, by which a command may end.
        let deadline = link.ready(limit).await?;
        if stop.is_asking {
            link.call_asking(command(link), deadline).await
        } else {
            link.send(&command(link), deadline).await
        }
    }

    /// Until when a server that may be gone may take to answer.
    fn end_at(&self, link: &Link) -> Deadline {
        mutant!(FarMasterCutShort => return self.again.end());
        let now = Moment::now();
        self.again.end().max_at(Deadline::new(now, link.round_trip() * 2), now)
    }

    /// Prepares the next try; fails when there is none.
    async fn on_error(
        &mut self,
        error: CallError,
        node: &Node,
        link: &Link,
        deadline: Deadline,
    ) -> Result<(), CallError> {
        // A redirection may be the answer to a repetition alone: the command before it may have taken effect here, and its answer was
        // lost. The slot that moves ends the connection itself.
        self.again.note(&error);
        let topology = &self.cluster.topology;
        let named = |error: CallError| error.of(&format!("the node {node}"));
        match verdict(&error, node, BRIEF.max(link.round_trip() * 2)) {
            Verdict::Final if error.is_out_of_time() => return Err(named(error)),
            Verdict::Final => return Err(error),
            Verdict::Moved(to) => {
                topology.on_moved(self.slot, &to);
                // Two masters that each name the other will soon agree.
                if self.again.was_refused() && !self.again.pause().await {
                    return Err(error);
                }
                self.again.note_refusal(error);
            }
            Verdict::Ask(to) => self.asking = Some(to),
            Verdict::Again => {
                if !self.again.pause().await {
                    return Err(error);
                }
                self.again.note_refusal(error);
            }
            // The same master, over another connection.
            Verdict::Cut if !std::mem::replace(&mut self.was_cut, true) => {}
            Verdict::Cut | Verdict::Doubt => {
                topology.doubt(node);
                topology.look_for(self.slot, deadline.remaining()).await;
                let is_same = topology.master(self.slot).is_none_or(|(master, _)| master == *node);
                let may_pass = !is_same || (link.may_pass(&error, deadline.start()) && self.again.pause().await);
                if !may_pass || deadline.has_passed() {
                    return Err(named(error));
                }
            }
        }
        Ok(())
    }
}

fn verdict(error: &CallError, at: &Node, brief: Duration) -> Verdict {
    let error = match error {
        CallError::Failed(error) => error,
        CallError::Unsent(error) => {
            return match verdict(error, at, brief) {
                Verdict::Cut => Verdict::Doubt,
                verdict => verdict,
            };
        }
        CallError::NoRoom => return Verdict::Final,
        // So short a wait says nothing about the server.
        CallError::Silent(limit) | CallError::NoConnection(limit) if *limit < brief => return Verdict::Final,
        _ => return Verdict::Doubt,
    };
    let to = error.redirect_node().and_then(|(to, _)| Node::read(to, at));
    match (error.code(), to) {
        (Some("MOVED"), Some(to)) => Verdict::Moved(to),
        (Some("ASK"), Some(to)) => Verdict::Ask(to),
        (Some("TRYAGAIN"), _) => Verdict::Again,
        (Some("CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "READONLY"), _) => Verdict::Doubt,
        _ if error.is_io_error() => Verdict::Cut,
        _ => Verdict::Final,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said_of(error: &CallError) -> String {
        let at = Node { host: "here".into(), port: 7 };
        match verdict(error, &at, BRIEF) {
            Verdict::Moved(to) => format!("moved to {to}"),
            Verdict::Ask(to) => format!("on its way to {to}"),
            Verdict::Again => "again".to_owned(),
            Verdict::Cut => "cut".to_owned(),
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
        let broken = CallError::from(broken);
        assert_eq!(said_of(&broken), "cut");
        assert_eq!(said_of(&broken.before_sending()), "doubt");
        for error in [CallError::Silent, CallError::NoConnection] {
            assert_eq!(said_of(&error(BRIEF)), "doubt");
            assert_eq!(said_of(&error(BRIEF / 2)), "final");
        }
    }
}
