//! [`Route`]: sends one command to the master of its slot.

use std::sync::Arc;
use std::time::Duration;

use super::Cluster;
use super::map::Node;
use crate::clock::{Deadline, Moment};
use crate::failure::CallError;
use crate::link::{Again, Called, Command, Link, Outgoing};

/// A command that went unanswered for less than this, or for less than two round trips, does not put its master in doubt.
const BRIEF: Duration = Duration::from_millis(100);

/// One command, and where it was sent so far.
pub(super) struct Route<'a> {
    cluster: &'a Cluster,
    slot: u16,
    /// Limits all redirections together to the time that one answer may take.
    again: Again,
    /// The next master of a slot that is migrating; the next try goes there.
    asking: Option<Node>,
    /// Whether a connection has broken under the command.
    was_cut: bool,
}

/// The destination of one try.
struct Stop {
    node: Node,
    is_asking: bool,
    was_doubtful: bool,
}

/// What a failed command means.
enum Verdict {
    /// Another master owns the slot now.
    Moved(Node),
    /// The slot is migrating, and its next master handles this command.
    Ask(Node),
    /// The slot is migrating, and the command's keys are on both masters.
    Again,
    /// The connection broke.
    Cut,
    /// Another master may have taken over.
    Doubt,
    Final,
}

impl<'a> Route<'a> {
    pub(super) fn new(cluster: &'a Cluster, slot: u16, deadline: Deadline) -> Self {
        let again = Again::new(deadline, cluster.topology.common.command_timeout);
        Self { cluster, slot, again, asking: None, was_cut: false }
    }

    /// Sends the command until a master answers, or another try can't help.
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
        // Otherwise a connection to a server that vanished silently would use up all the time. A distant server still gets the time to
        // answer, also after the master was looked for.
        let limit = if stop.was_doubtful { deadline.min_at(self.end_at(link), deadline.start()) } else { deadline };
        // Make the command only once there is a connection: it may need the server's clock, which is unknown before.
        let deadline = link.ready(limit).await?;
        if stop.is_asking {
            link.call_asking(command(link), deadline).await
        } else {
            link.send(&command(link), deadline).await
        }
    }

    /// How long to wait for a server that may be gone.
    fn end_at(&self, link: &Link) -> Deadline {
        mutant!(FarMasterCutShort => return self.again.end());
        let now = Moment::now();
        self.again.end().max_at(Deadline::new(now, link.round_trip() * 2), now)
    }

    /// Prepares the next try; fails when another try can't help.
    async fn on_error(
        &mut self,
        error: CallError,
        node: &Node,
        link: &Link,
        deadline: Deadline,
    ) -> Result<(), CallError> {
        // A redirection may answer only the repeated command: the first may have taken effect here while its answer was lost, because a
        // slot that moves closes the connection itself.
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
            // Retry the same master over a new connection.
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
        // Such a short wait says nothing about the server.
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
