//! What a client does to its own state only.

use crate::FAR;
use crate::state::{Anchor, Asked, Command, Grant, Health, Lease, Message, Outcome, Phase, Process, Ticks, Verb};
use crate::state::{Breach, CALLERS, Link, Seen};

impl Process {
    /// Sends a command.
    pub(crate) fn send(&mut self, link: usize, sequence: u8, verb: Verb, wanted: bool) {
        self.links[link].up.push(Command { sequence, verb, age: 0, wanted, late: None });
    }

    /// The task with the turn sends a command and waits for its reply.
    pub(crate) fn ask_for(&mut self, sequence: u8, verb: Verb) {
        self.awaits = true;
        self.send(CALLERS, sequence, verb, true);
    }

    /// Nobody waits for the replies to such commands any more.
    pub(crate) fn forget_replies(&mut self, are_meant: impl Fn(&Command) -> bool) {
        let Link { up, down, .. } = &mut self.links[CALLERS];
        let read = down.iter_mut().filter_map(|message| match message {
            Message::Reply(command, ..) => Some(command),
            _ => None,
        });
        for command in up.iter_mut().chain(read).filter(|command| are_meant(command)) {
            command.wanted = false;
        }
    }

    /// The lease ends here; its release is sent in the same step.
    pub(crate) fn give_up_lease(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.given_up = self.given_up.max(lease.sequence);
        }
    }

    /// Whether a task here still wants what this token asks for.
    pub(crate) fn waits_for(&self, sequence: u8) -> bool {
        self.health == Health::Live && self.asked.as_ref().is_some_and(|asked| asked.sequence == sequence)
    }

    /// Whether a task waits for the lock.
    pub(crate) fn wants(&self) -> bool {
        self.health == Health::Live && self.tasks.iter().any(|task| !task.asleep && task.phase.waits())
    }

    /// How many holds are not over: under the lease, or taken from a body that is not dropped yet.
    pub(crate) fn holds(&self) -> usize {
        if self.health != Health::Live {
            return 0;
        }
        self.tasks.iter().filter(|task| self.left_of(&task.phase) > 0).count()
    }

    /// What is left of a task's hold.
    pub(crate) fn left_of(&self, phase: &Phase) -> Ticks {
        match phase {
            Phase::Holding(own) => self.lease.as_ref().map_or(0, |lease| lease.left.min(*own)),
            Phase::Lost(_, left) => *left,
            _ => 0,
        }
    }

    /// A tick passes.
    pub(crate) fn tick(&mut self) {
        for task in &mut self.tasks {
            if let Phase::Holding(left) | Phase::Lost(_, left) = &mut task.phase {
                *left = left.saturating_sub(1);
            }
            if task.phase.waits() {
                task.patience = task.patience.map(|left| left.saturating_sub(1));
            }
        }
        if let Some(lease) = &mut self.lease {
            lease.left = lease.left.saturating_sub(1);
        }
        self.unused = self.unused.map(|_| true);
        if let Some(asked) = &mut self.asked {
            asked.pause = asked.pause.saturating_sub(1);
            asked.due = asked.queued && asked.pause == 0;
            asked.near = asked.near.map(older);
            asked.repeated = false;
            if let Some(grant) = &mut asked.granted {
                grant.left = grant.left.saturating_sub(1);
            }
            if let Some(anchor) = &mut asked.anchor {
                anchor.since = older(anchor.since);
            }
            if let Some((age, _)) = &mut asked.pushed {
                *age = older(*age);
            }
        }
        for link in &mut self.links {
            for command in link.up.iter_mut().chain(&mut link.late) {
                command.tick();
            }
            for message in &mut link.down {
                match message {
                    Message::Reply(command, ..) => command.tick(),
                    Message::Grant(_, age, _) | Message::Relayed(_, age, _) | Message::Near(age) => *age = older(*age),
                    Message::Wait | Message::Forced(_) => {}
                }
            }
        }
    }
}

impl Phase {
    /// Whether a task waits for the lock.
    pub(crate) fn waits(&self) -> bool {
        matches!(self, Self::Waiting | Self::Driving | Self::Late)
    }
}

/// Ages beyond every lease are all the same.
fn older(age: Ticks) -> Ticks {
    (age + 1).min(crate::LEASE + 1)
}

impl Command {
    fn tick(&mut self) {
        self.age = older(self.age);
        if let Verb::Ask(_, Some(left)) = &mut self.verb {
            *left = left.saturating_sub(1);
        }
    }
}

impl Seen {
    /// A hold has this fencing token.
    pub(crate) fn used(&mut self, fence: u8) {
        if fence <= self.fence {
            self.breach = Some(Breach::FenceRepeated);
        }
        self.fence = fence;
    }
}

impl Lease {
    pub(crate) fn new(asked: &Asked, grant: Grant) -> Self {
        Self {
            sequence: asked.sequence,
            left: grant.left,
            fresh: true,
            holder: None,
            confirmed: false,
            renewing: None,
            fences: grant.fences,
            rival: (grant.contended || asked.contended).then_some(0),
            used: false,
            lingers: false,
        }
    }
}

impl Lease {
    /// The store has confirmed it for so long. If it may have lapsed before, others may have drawn fencing tokens since.
    pub(crate) fn confirm(&mut self, left: Ticks, forget: bool) {
        if self.left == 0 && forget {
            self.fences = (0, 0);
        }
        self.left = self.left.max(left);
    }
}

impl Asked {
    /// Takes in an answer.
    pub(crate) fn answer(&mut self, grant: Option<Grant>, outcome: Outcome, anchor: Anchor, queues: bool) {
        self.unanswered = false;
        self.due = false;
        self.pause = 0;
        match outcome {
            Outcome::Busy(_) | Outcome::Far(_) => {
                let dated = outcome != Outcome::Busy(false);
                // Rule 5: also when the owner's lease must have ended.
                // An answer that is older than the message counts for nothing, even when it is read later.
                let is_old = self.near.is_some_and(|age| anchor.since >= age);
                self.pause = if let Outcome::Far(left) = outcome { left.min(FAR) } else { 0 };
                self.pause = if is_old { 0 } else { self.pause };
                self.queued |= queues;
                self.doubtful = false;
                self.answered = true;
                if dated {
                    self.anchor = Some(anchor);
                    // A grant that the server has not had in mind since is over.
                    self.pushed = self.pushed.filter(|(age, _)| anchor.since >= *age);
                }
            }
            Outcome::Late => self.doubtful = true,
            _ => self.granted = grant.or(self.granted),
        }
    }

    /// Whether anything may have come of it in the store: not of a plain claim that was refused.
    pub(crate) fn may_stand(&self) -> bool {
        self.unanswered || self.queued || self.granted.is_some() || self.pushed.is_some()
    }
}
