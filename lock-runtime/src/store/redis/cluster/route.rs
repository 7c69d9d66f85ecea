//! [`Route`]: one command on its way to the master of its slot.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::super::failure::CallError;
use super::super::link::{Called, Link, Outgoing};
use super::Cluster;
use super::map::Node;
use crate::clock::{Deadline, Moment};
use crate::store::Reach;

/// The first and the longest pause before a command is sent again while its slot is on its way to another master.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(25));
/// A master is not doubtful because it left a command unanswered for less than this, or for less than two round trips.
const BRIEF: Duration = Duration::from_millis(100);

/// What was tried so far, and what the masters said.
pub(super) struct Route<'a> {
    cluster: &'a Cluster,
    slot: u16,
    /// Redirections together take no longer than one answer may take.
    end: Deadline,
    pause: Duration,
    /// The next master of a slot that is on its way: the next try goes there.
    asking: Option<Node>,
    /// An earlier try may have taken effect on another master.
    repeated: bool,
    was_sent: bool,
    /// What a master said. The last try may be cut short, and its error then says less about the reason.
    refused: Option<CallError>,
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
    /// Perhaps another master has taken the place of this one.
    Doubt,
    Final,
}

impl<'a> Route<'a> {
    pub(super) fn new(cluster: &'a Cluster, slot: u16, deadline: Deadline) -> Self {
        let end = deadline.min_at(Deadline::after(cluster.topology.common.command_timeout), deadline.start());
        Self { cluster, slot, end, pause: PAUSES.0, asking: None, repeated: false, was_sent: false, refused: None }
    }

    /// Sends the command until a master answers, or no other try can help.
    pub(super) async fn follow(
        mut self,
        command: &(dyn Fn(&Link) -> Outgoing + Send + Sync),
        deadline: Deadline,
    ) -> Result<Called, CallError> {
        let outcome = self.try_masters(command, deadline).await;
        // The error of the last try may say that nothing was sent, but an earlier try was.
        outcome.map_err(|error| if self.was_sent { error.after_sending() } else { error })
    }

    async fn try_masters(
        &mut self,
        command: &(dyn Fn(&Link) -> Outgoing + Send + Sync),
        mut deadline: Deadline,
    ) -> Result<Called, CallError> {
        loop {
            let stop = self.next_stop(deadline).await.map_err(CallError::before_sending)?;
            deadline = deadline.counted_from(Moment::now());
            let link = self.cluster.link(&stop.node);
            let (outcome, repeated) = self.send(&stop, &link, command, deadline).await;
            // A redirection may be the answer to the repetition alone: the command before it may have taken effect here, and its
            // answer was lost. The slot that moves ends the connection itself.
            self.note_repeated(repeated);
            match outcome {
                Ok(called) => {
                    if stop.was_doubtful {
                        self.cluster.topology.trust(&stop.node);
                    }
                    return Ok(Called { repeated: called.repeated || self.repeated, ..called });
                }
                Err(CallError::UnknownScript { repeated }) => {
                    return Err(CallError::UnknownScript { repeated: repeated || self.repeated });
                }
                Err(error) => {
                    let brief = BRIEF.max(link.round_trip() * 2);
                    self.on_error(error, &stop.node, brief, deadline).await?;
                }
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

    async fn send(
        &self,
        stop: &Stop,
        link: &Arc<Link>,
        command: &(dyn Fn(&Link) -> Outgoing + Send + Sync),
        deadline: Deadline,
    ) -> (Result<Called, CallError>, bool) {
        // Otherwise a connection to a server that is gone without a word would use up all the time. A server that is far away has the
        // time to answer, also after a look for the master.
        let limit = if stop.was_doubtful { deadline.min_at(self.end_at(link), deadline.start()) } else { deadline };
        // The command is made when there is a connection: only then is the server's clock known, by which an ask ends.
        let deadline = match link.ready(limit).await {
            Ok(deadline) => deadline,
            Err(error) => return (Err(error), false),
        };
        if stop.is_asking {
            (link.call_asking(command(link), deadline).await, false)
        } else {
            link.call_telling(command(link), deadline).await
        }
    }

    /// Until when a server that may be gone may take to answer.
    fn end_at(&self, link: &Link) -> Deadline {
        mutant!(FarMasterCutShort => return self.end);
        let now = Moment::now();
        self.end.max_at(Deadline::new(now, link.round_trip() * 2), now)
    }

    fn note_repeated(&mut self, repeated: bool) {
        mutant!(RepetitionBeforeMoveForgotten => return);
        self.repeated |= repeated;
    }

    /// Prepares the next try; fails when there is none.
    async fn on_error(
        &mut self,
        error: CallError,
        node: &Node,
        brief: Duration,
        deadline: Deadline,
    ) -> Result<(), CallError> {
        self.was_sent |= error.reach() != Reach::Unsent;
        let topology = &self.cluster.topology;
        let named = |error: CallError| error.of(&format!("the node {node}"));
        match verdict(&error, node, brief) {
            Verdict::Final if error.is_out_of_time() => return Err(self.explained(named(error))),
            Verdict::Final => return Err(error),
            Verdict::Moved(to) => {
                topology.on_moved(self.slot, &to);
                // Two masters that each name the other will soon agree.
                if self.refused.is_some() {
                    again(&mut self.pause, self.end, &error).await?;
                }
                self.refused = Some(error);
            }
            Verdict::Ask(to) => self.asking = Some(to),
            Verdict::Again => {
                again(&mut self.pause, self.end, &error).await?;
                self.refused = Some(error);
            }
            Verdict::Doubt => {
                topology.doubt(node);
                let error = named(error);
                if deadline.has_passed() {
                    return Err(self.explained(error));
                }
                topology.look_for(self.slot, deadline.remaining()).await;
                if topology.master(self.slot).is_none_or(|(master, _)| master == *node) || deadline.has_passed() {
                    return Err(error);
                }
                self.repeated = true;
            }
        }
        Ok(())
    }

    /// The error of the last try, or the redirection that says more about it.
    fn explained(&mut self, error: CallError) -> CallError {
        match self.refused.take() {
            Some(refused) => refused.in_place_of(&error),
            None => error,
        }
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
        _ if error.is_io_error() => Verdict::Doubt,
        _ => Verdict::Final,
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
