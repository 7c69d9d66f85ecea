//! A client's keeper, and what reaches a client without being asked for. As `lock-runtime/src/keeper.rs`, `lock/upkeep.rs`.

use crate::client::forget_lease;
use crate::server::excuse;
use crate::state::{
    CALLERS, Command, Health, KEEPERS, Message, Outcome, Phase, Process, Ticks, Token, Verb, World, marked,
};
use crate::{CLAIM, DRIFT, Duty, Protocol, Rule};

impl Protocol {
    /// What the keeper of a process has to do now.
    pub(crate) fn duties(&self, me: &Process) -> Vec<Duty> {
        let mut duties = Vec::new();
        if let Some(lease) = &me.lease {
            match lease.holder {
                Some(task) if me.left_of(&me.tasks[task].phase) == 0 => duties.push(Duty::NoticeLoss),
                Some(task) => {
                    let terms = self.tasks[task];
                    let is_due = !lease.confirmed || (terms.renew && lease.left < terms.lease - DRIFT);
                    if is_due && lease.renewing.is_none() {
                        duties.push(Duty::Renew);
                    }
                }
                // Rule L9: a lease that lingers yields to whoever waits.
                None if lease.lingers => {
                    let has_to_yield = lease.rival.is_some() && self.keeps(Rule::LingerYields);
                    if has_to_yield || lease.left == 0 {
                        duties.push(Duty::ReleaseUnused);
                    }
                }
                // Rule L5.
                None if me.turn.is_none() && self.keeps(Rule::NobodyLeft) => duties.push(Duty::ReleaseUnused),
                None => {}
            }
        }
        duties.extend(self.duties_to_sleeper(me));
        // Rule 5.
        if let Some(asked) = &me.asked
            && asked.due
            && asked.queued
            && !asked.unanswered
            && asked.granted.is_none()
            && asked.pushed.is_none()
            && self.keeps(Rule::AskAgain)
        {
            duties.push(Duty::AskAgain);
        }
        duties
    }

    /// Does it.
    pub(crate) fn keep(&self, world: &mut World, process: usize, duty: Duty) {
        let me = &mut world.processes[process];
        match duty {
            Duty::NoticeLoss => self.revoke(world, process),
            Duty::PassOver => self.pass_over(world, process),
            Duty::AskForSleeper => me.ask_for_sleeper(),
            Duty::Renew => {
                let Some((lease, task)) = me.lease.as_mut().and_then(|lease| lease.holder.map(|task| (lease, task)))
                else {
                    return;
                };
                lease.renewing = Some(true);
                let (terms, sequence) = (self.tasks[task], lease.sequence);
                let own = if let Phase::Holding(own) = me.tasks[task].phase { own } else { 0 };
                me.send(KEEPERS, sequence, Verb::Renew(if terms.renew { terms.lease } else { own }), true);
            }
            Duty::ReleaseUnused => {
                if let Some(lease) = &me.lease {
                    let (sequence, unused) = (lease.sequence, lease.fences);
                    me.give_up_lease();
                    me.send(KEEPERS, sequence, Verb::Release(unused, None), true);
                }
            }
            Duty::AskAgain => {
                if let Some(asked) = &mut me.asked {
                    asked.due = false;
                    let sequence = asked.sequence;
                    me.send(KEEPERS, sequence, Verb::Ask(0, Some(1)), true);
                }
            }
        }
    }

    /// Ends the lease under its hold (rule L6): by its deadline, by a store that does not know it, or by the shutdown.
    /// The turn passes on; the body is told.
    pub(crate) fn revoke(&self, world: &mut World, process: usize) {
        let me = &mut world.processes[process];
        let Some(lease) = &mut me.lease else { return };
        let sequence = lease.sequence;
        let Some(task) = lease.holder else {
            return forget_lease(world, process);
        };
        lease.holder = None;
        let left = me.left_of(&me.tasks[task].phase);
        me.tasks[task].phase = Phase::Lost(sequence, left);
        if self.keeps(Rule::WholeLease) {
            me.give_up_lease();
        }
        // Rule 14.
        if !self.keeps(Rule::DropFirst) {
            me.send(KEEPERS, sequence, Verb::Release((0, 0), None), true);
        }
        self.pass(world, process);
    }

    /// The keeper reads a reply.
    pub(crate) fn keeper_reads(
        &self,
        world: &mut World,
        process: usize,
        command: &Command,
        outcome: Outcome,
        ran: Ticks,
    ) {
        let me = &mut world.processes[process];
        match command.verb {
            Verb::Renew(wanted) => {
                let age = if self.keeps(Rule::FromSending) { command.age } else { 0 };
                let Some(lease) = me.lease.as_mut().filter(|lease| lease.sequence == command.sequence) else { return };
                let for_this_hold = lease.renewing.take() == Some(true);
                if outcome == Outcome::NotOwned {
                    return self.revoke(world, process);
                }
                lease.confirm(self.certain(wanted, age), self.keeps(Rule::FreshFences));
                if let Some(task) = lease.holder.filter(|_| for_this_hold) {
                    lease.confirmed = true;
                    if self.tasks[task].renew
                        && let Phase::Holding(own) = &mut me.tasks[task].phase
                    {
                        *own = (*own).max(wanted.saturating_sub(age));
                    }
                }
                // A task that waits for time on the lease looks again by itself: it has a command of its own under way.
            }
            Verb::Ask(..) => {
                if !self.answered(me, command, outcome, ran) {
                    self.give_back_stray(me, command.sequence);
                }
                self.drive(world, process);
            }
            _ => {}
        }
    }

    /// Takes in a push.
    pub(crate) fn pushed(&self, world: &mut World, process: usize, message: &Message) {
        let me = &mut world.processes[process];
        match *message {
            Message::Grant(sequence, age, contended) | Message::Relayed(sequence, age, contended) => {
                if me.lease.as_ref().is_some_and(|lease| lease.sequence == sequence) || self.is_lost(me, sequence) {
                    return;
                }
                let Some(asked) = me.asked.as_mut().filter(|asked| asked.sequence == sequence) else {
                    return self.give_back_stray(me, sequence);
                };
                asked.pushed = Some((age, contended));
                asked.uncounted = matches!(message, Message::Relayed(..)) && self.keeps(Rule::CountedGrants);
                world.seen.hand_off = true;
                self.drive(world, process);
            }
            Message::Wait => match (&mut me.lease, &mut me.asked) {
                (Some(lease), _) => lease.rival = lease.rival.or(Some(0)),
                (None, Some(asked)) => {
                    asked.contended = true;
                    // Owners alone are told: the grant was lost.
                    if asked.pause > 0 && asked.pushed.is_none() && asked.granted.is_none() {
                        (asked.pause, asked.doubtful) = (0, true);
                        self.drive(world, process);
                    }
                }
                (None, None) => {}
            },
            Message::Near(age) => {
                if let Some(asked) = &mut me.asked {
                    (asked.pause, asked.near) = (0, Some(age));
                }
            }
            Message::Forced(sequence) => self.forced(world, process, sequence),
            Message::Reply(..) => {}
        }
    }

    /// The lock of this token is released by force: the hold ends, and what is at the lock is released after its body.
    fn forced(&self, world: &mut World, process: usize, sequence: u8) {
        let me = &mut world.processes[process];
        let lease = me.lease.as_ref().filter(|lease| lease.sequence == sequence);
        if let Some(lease) = lease {
            if lease.holder.is_some() {
                me.forced = Some(sequence);
                return self.revoke(world, process);
            }
            forget_lease(world, process);
        }
        let me = &mut world.processes[process];
        let is_asked = me.asked.as_ref().is_some_and(|asked| asked.sequence == sequence);
        let is_lost = |task: &crate::state::Task| matches!(task.phase, Phase::Lost(lost, _) if lost == sequence);
        if me.tasks.iter().any(is_lost) {
            // The loss was known before.
            me.forced = Some(sequence);
        } else if !is_asked {
            // What is still to be granted ends with its claim.
            me.send(KEEPERS, marked(sequence), Verb::Release((0, 0), None), true);
        }
        self.drive(world, process);
    }

    /// Rule 12: a grant that nobody waits for is answered with its release.
    pub(crate) fn give_back_stray(&self, me: &mut Process, sequence: u8) {
        if self.keeps(Rule::StrayGrants) {
            me.send(KEEPERS, sequence, Verb::Release((0, 0), None), true);
        }
    }

    /// A connection breaks. What was sent may be executed late, or never; what somebody waits for is sent again over a
    /// new connection, which asks and verifies anew.
    pub(crate) fn break_link(&self, world: &mut World, process: usize, link: usize) {
        let me = &mut world.processes[process];
        let sent = std::mem::take(&mut me.links[link].up);
        let token = |message: &Message| match *message {
            Message::Grant(sequence, ..) => Some(Token { process, sequence }),
            _ => None,
        };
        let lost: Vec<Token> = me.links[link].down.iter().filter_map(token).collect();
        let unread = std::mem::take(&mut me.links[link].down);
        let replies = unread.into_iter().filter_map(|message| match message {
            Message::Reply(command, ..) => Some(command),
            _ => None,
        });
        for command in replies.chain(sent.iter().cloned()).filter(|command| command.wanted) {
            // The keeper does not repeat what is asked or renewed; it will find that due again.
            if link == CALLERS || command.verb.ends() {
                me.links[link].up.push(Command { age: 0, ..command });
            }
        }
        me.links[link].late.extend(sent);
        if let Some(lease) = &mut me.lease {
            lease.confirmed = false;
            // What was pushed meanwhile is not known.
            lease.lingers = false;
            if link == KEEPERS {
                lease.renewing = None;
            }
        }
        if let Some(asked) = &mut me.asked {
            asked.doubtful = true;
        }
        for token in lost {
            excuse(world, token, CLAIM);
        }
        self.drive(world, process);
    }

    /// A process crashes: what it has sent is still executed.
    pub(crate) fn crash(world: &mut World, process: usize, health: Health) {
        let owned = world.server.lock.filter(|(owner, _)| owner.process == process);
        let me = &mut world.processes[process];
        let queued = me.asked.is_some();
        let deletes = me.tasks.iter().any(|task| matches!(task.phase, Phase::Releasing(..)));
        let links = std::mem::take(&mut me.links).map(|mut link| {
            link.late.append(&mut link.up);
            link.down.clear();
            link
        });
        let tasks = me.tasks.iter().map(|task| crate::state::Task {
            phase: Phase::Idle,
            rounds: 0,
            asleep: false,
            ..task.clone()
        });
        *me = Process { health, tasks: tasks.collect(), links, ..Process::default() };
        let delay = match (owned, health) {
            (Some((_, left)), _) => left + 1,
            (None, Health::Vanished) if queued => CLAIM + 1,
            // Who waits for a lock that it has deleted asks again.
            (None, _) if deletes => 1,
            _ => 0,
        };
        world.seen.allowed += delay;
    }
}
