//! Tasks that are not polled when there is something to do for them (rule L7). As `lock-runtime/src/lock/offer.rs`.
//!
//! 50 ms are no time here: the keeper looks as soon as a task is late. The 0.9 s for which a lease is kept that no task
//! takes up are a tick.

use crate::state::{Asked, CALLERS, Command, KEEPERS, Message, Outcome, Phase, Process, Ticks, Verb, World};
use crate::{Duty, Protocol, Rule};

impl Process {
    /// The first message that is taken in: a reply to a task that is not polled lies there, and what comes behind it
    /// does not have to wait.
    pub(crate) fn first_readable(&self, link: usize) -> Option<usize> {
        self.links[link].down.iter().position(|message| match message {
            Message::Reply(command, ..) if link == CALLERS && command.wanted => {
                !self.reader(command).is_some_and(|task| self.tasks[task].asleep)
            }
            _ => true,
        })
    }

    /// The task that waits for the reply to a command.
    fn reader(&self, command: &Command) -> Option<usize> {
        let is_it = |phase: &Phase| matches!(phase, Phase::Releasing(sequence, _) if *sequence == command.sequence);
        match command.verb {
            _ if command.late.is_some() => command.late,
            Verb::Release(..) | Verb::Delete => self.tasks.iter().position(|task| is_it(&task.phase)),
            _ => self.turn,
        }
    }

    /// The task that has the turn and is not polled.
    fn sleeper(&self) -> Option<usize> {
        self.turn.filter(|&task| self.tasks[task].asleep || self.tasks[task].phase == Phase::Late)
    }

    /// Whether no task here takes up its turn.
    pub(crate) fn is_missed(&self) -> bool {
        self.turn.is_some_and(|task| self.tasks[task].phase == Phase::Late)
    }

    /// Whether there is a lease, or a grant of one, that nobody holds.
    fn is_granted(&self) -> bool {
        let is_granted = |asked: &Asked| asked.granted.is_some() || asked.pushed.is_some();
        self.lease.is_some() || self.asked.as_ref().is_some_and(is_granted)
    }

    /// Whether another process is known to wait.
    fn has_rival(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.rival.is_some())
            || self.asked.as_ref().is_some_and(|asked| {
                let by = |contended: Option<bool>| contended == Some(true);
                asked.contended
                    || by(asked.granted.map(|grant| grant.contended))
                    || by(asked.pushed.map(|(_, contended)| contended))
            })
    }

    /// Whether there is something to do for the task with the turn.
    fn is_called(&self) -> bool {
        self.is_granted()
            || self.asked.as_ref().is_none_or(|asked| !asked.unanswered && (asked.doubtful || !asked.queued))
    }

    /// Offers what is granted to a late task: whichever is polled first takes it.
    pub(crate) fn call_late(&mut self) -> bool {
        let late = self.tasks.iter().position(|task| task.phase == Phase::Late);
        let Some(late) = late.filter(|_| self.is_granted()) else { return false };
        self.turn = Some(late);
        self.unused.get_or_insert(false);
        true
    }

    /// Repeats an ask whose answer lies with a task that does not read it.
    pub(crate) fn ask_for_sleeper(&mut self) {
        if let Some(asked) = &mut self.asked {
            asked.repeated = true;
            let sequence = asked.sequence;
            self.send(KEEPERS, sequence, Verb::Ask(0, Some(1)), true);
        }
    }

    /// The turn of a task passes on; what it waits for it reads when it is polled.
    fn leave_behind(&mut self, task: usize) {
        // A task that waits for the answer to its release does not come back for the turn.
        if self.tasks[task].phase == Phase::Driving {
            self.tasks[task].phase = Phase::Late;
        }
        if !std::mem::take(&mut self.awaits) {
            return;
        }
        let link = &mut self.links[CALLERS];
        let read = link.down.iter_mut().filter_map(|message| match message {
            Message::Reply(command, ..) => Some(command),
            _ => None,
        });
        for command in link.up.iter_mut().chain(read) {
            if command.wanted && command.late.is_none() && !command.verb.ends() {
                command.late = Some(task);
            }
        }
    }

    /// Whether a late task still waits for a reply.
    fn has_unread(&self, task: usize) -> bool {
        let link = &self.links[CALLERS];
        let read = link.down.iter().filter_map(|message| match message {
            Message::Reply(command, ..) => Some(command),
            _ => None,
        });
        link.up.iter().chain(read).any(|command| command.wanted && command.late == Some(task))
    }
}

impl Protocol {
    /// What the keeper does for a task that has the turn and is not polled.
    pub(crate) fn duties_to_sleeper(&self, me: &Process) -> Option<Duty> {
        let task = me.sleeper()?;
        if me.is_missed() {
            // When all tasks here are late, the lease is kept for a while, but not from another process.
            let is_over = me.has_rival() || me.unused == Some(true) || !me.is_granted();
            return is_over.then_some(Duty::PassOver);
        }
        if me.is_called() {
            return self.keeps(Rule::LateTurn).then_some(Duty::PassOver);
        }
        let is_driving = me.tasks[task].phase == Phase::Driving || matches!(me.tasks[task].phase, Phase::Releasing(..));
        let is_unread = me.asked.as_ref().is_some_and(|asked| asked.unanswered && !asked.repeated);
        (is_driving && is_unread && self.keeps(Rule::UnreadAnswer)).then_some(Duty::AskForSleeper)
    }

    /// Passes on the turn of a task that does not take it up. What others wait for, or no task here takes up, is given
    /// back.
    pub(crate) fn pass_over(&self, world: &mut World, process: usize) {
        let me = &mut world.processes[process];
        let Some(task) = me.sleeper() else { return };
        me.leave_behind(task);
        let is_over = me.has_rival() || me.unused == Some(true);
        me.unused.get_or_insert(false);
        if is_over && me.is_granted() {
            me.unused = None;
            if let Some(lease) = &me.lease {
                let (sequence, unused) = (lease.sequence, lease.fences);
                me.give_up_lease();
                me.send(KEEPERS, sequence, Verb::Release(unused, None), true);
            } else if let Some(asked) = me.asked.take() {
                me.given_up = me.given_up.max(asked.sequence);
                me.send(KEEPERS, asked.sequence, Verb::Release((0, 0), None), true);
            }
        }
        self.pass(world, process);
    }

    /// A task is polled again.
    pub(crate) fn awake(&self, world: &mut World, process: usize, task: usize) {
        let me = &mut world.processes[process];
        me.tasks[task].asleep = false;
        match me.tasks[task].phase {
            Phase::Late if !me.has_unread(task) => self.rejoin(world, process, task),
            _ => self.drive(world, process),
        }
    }

    /// Takes in a late task that is polled at last: it takes a turn that nobody takes up, or waits at its old place.
    fn rejoin(&self, world: &mut World, process: usize, task: usize) {
        let me = &mut world.processes[process];
        if !self.keeps(Rule::StaleTurn) && me.lease.is_some() {
            return self.hold(world, process, task);
        }
        let other = me.turn.filter(|&other| other != task);
        if other.is_some() && !(me.sleeper().is_some() && me.is_called()) {
            me.tasks[task].phase = Phase::Waiting;
            return;
        }
        if let Some(other) = other {
            me.leave_behind(other);
        }
        me.turn = Some(task);
        me.tasks[task].phase = Phase::Driving;
        self.drive(world, process);
    }

    /// A late task reads the answer to what it sent while it had the turn. Of its lease it is too late to say anything; what
    /// was granted meanwhile belongs to whoever acts now, or to nobody.
    pub(crate) fn read_late(
        &self,
        world: &mut World,
        process: usize,
        task: usize,
        command: &Command,
        outcome: Outcome,
        ran: Ticks,
    ) {
        let me = &mut world.processes[process];
        let is_ask = matches!(command.verb, Verb::Claim | Verb::Ask(..));
        let may_tell = matches!(outcome, Outcome::Granted(_)) || me.turn == Some(task);
        if is_ask && may_tell && !self.answered(me, command, outcome, ran) {
            self.give_back_stray(me, command.sequence);
        }
        self.drive(world, process);
        let me = &world.processes[process];
        if me.tasks[task].phase == Phase::Late && !me.tasks[task].asleep && !me.has_unread(task) {
            self.rejoin(world, process, task);
        }
    }
}
