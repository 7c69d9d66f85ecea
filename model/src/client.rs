//! A client's tasks: the queue in the process, the task with the turn, and the hold. As `lock-runtime/src/local`.

use crate::server::excuse;
use crate::state::{
    Anchor, Asked, AskedAgain, CALLERS, Command, Grant, KEEPERS, Lease, Outcome, Phase, Process, Task, Ticks, Token,
    Verb, World, marked,
};
use crate::{Breach, End, Protocol, Rule, STREAK};

impl Protocol {
    /// A task wants the lock.
    pub(crate) fn start(&self, world: &mut World, process: usize, task: usize) {
        let me = &mut world.processes[process];
        me.tasks[task].rounds -= 1;
        me.tasks[task].patience = self.patience;
        // A turn that no task here takes up is whose it is that comes.
        if me.turn.is_some() && !me.is_missed() {
            me.tasks[task].phase = Phase::Waiting;
            return;
        }
        me.turn = Some(task);
        me.tasks[task].phase = Phase::Driving;
        if let Some(lease) = &mut me.lease {
            lease.lingers = false;
        }
        self.drive(world, process);
    }

    /// The turn passes to the next task; what nobody needs any more is released.
    pub(crate) fn pass(&self, world: &mut World, process: usize) {
        let me = &mut world.processes[process];
        if me.awaits {
            me.awaits = false;
            me.forget_replies(|command| command.late.is_none() && !command.verb.ends());
        }
        me.turn = me.tasks.iter().position(|task| task.phase == Phase::Waiting);
        if let Some(next) = me.turn {
            me.tasks[next].phase = Phase::Driving;
            if let Some(lease) = &mut me.lease {
                lease.fresh = false;
            }
            return self.drive(world, process);
        }
        if me.call_late() {
            return;
        }
        me.unused = None;
        // Rule L5 leaves the lease to the keeper; rule 1 withdraws the ask.
        if let Some(asked) = me.asked.take().filter(Asked::may_stand) {
            me.given_up = me.given_up.max(asked.sequence);
            if self.keeps(Rule::TakeBack) {
                me.send(CALLERS, asked.sequence, Verb::Release((0, 0), None), false);
                me.send(KEEPERS, asked.sequence, Verb::Release((0, 0), None), true);
            }
        }
    }

    /// What the task with the turn does next, once nothing is on its way that it waits for.
    pub(crate) fn drive(&self, world: &mut World, process: usize) {
        let me = &mut world.processes[process];
        let is_free = |task: &usize| me.tasks[*task].phase == Phase::Driving && !me.tasks[*task].asleep && !me.awaits;
        let Some(task) = me.turn.filter(is_free) else { return };
        me.unused = None;
        let terms = self.tasks[task];
        if let Some(asked) = &mut me.asked
            && let Some(grant) = self.take_grant(asked)
        {
            me.lease = Some(Lease::new(asked, grant));
            me.asked = None;
        }
        let is_over = me.tasks[task].patience == Some(0);
        let fenced = u8::from(terms.fenced);
        let waiting =
            me.tasks.iter().zip(&self.tasks).filter(|(task, terms)| task.phase == Phase::Waiting && terms.fenced);
        let fences = fenced + fenced * u8::try_from(waiting.count()).unwrap_or(u8::MAX);
        if let Some(lease) = &me.lease {
            let sequence = lease.sequence;
            let asks_first = if lease.left == 0 && self.keeps(Rule::TimeLeft) {
                Some(Verb::Renew(terms.lease))
            } else if terms.fenced && lease.fences.0 >= lease.fences.1 && self.keeps(Rule::OwnFence) {
                Some(Verb::Draw(fences))
            } else {
                None
            };
            match asks_first {
                None => self.hold(world, process, task),
                Some(verb) if !is_over => me.ask_for(sequence, verb),
                Some(_) => {}
            }
            return;
        }
        if is_over {
            return;
        }
        if me.asked.is_none() {
            // Rule L3.
            me.last += u8::from(self.keeps(Rule::NewToken) || me.last == 0);
            me.asked = Some(Asked { sequence: me.last, ..Asked::default() });
        }
        let Some(asked) = &mut me.asked else { return };
        if asked.queued && !asked.doubtful && !asked.unanswered {
            return;
        }
        let is_first = !asked.answered && !asked.unanswered && !asked.queued;
        asked.unanswered = true;
        let sequence = asked.sequence;
        let patience = me.tasks[task].patience;
        me.ask_for(sequence, if is_first && fences == 0 { Verb::Claim } else { Verb::Ask(fences, patience) });
    }

    /// The grant that has come, if any, as far as it is certain.
    fn take_grant(&self, asked: &mut Asked) -> Option<Grant> {
        let pushed = asked.pushed.take().map(|(age, contended)| {
            // Rules 7 and 16: dated by an ask that was answered before the grant was made; and counted by the node that made it.
            let left = match asked.anchor.filter(|anchor| anchor.since >= age) {
                _ if asked.uncounted => 0,
                Some(anchor) => self.certain(self.first_claim(), age + anchor.slack),
                None if self.keeps(Rule::DatedGrants) => 0,
                None => self.certain(self.first_claim(), 0),
            };
            Grant { left, contended, fences: (0, 0) }
        });
        asked.granted.take().or(pushed)
    }

    /// The hold of `task` starts on the lease.
    pub(crate) fn hold(&self, world: &mut World, process: usize, task: usize) {
        let terms = self.tasks[task];
        let me = &mut world.processes[process];
        let Some(lease) = &mut me.lease else { return };
        if lease.left == 0 {
            world.seen.breach = Some(Breach::HoldWithoutTime);
        }
        if lease.sequence <= me.given_up {
            world.seen.breach = Some(Breach::TokenUsedAgain);
        }
        if terms.fenced {
            // Rule L2.
            let fence = lease.fences.0;
            if self.keeps(Rule::OwnFence) {
                lease.fences.0 += 1;
            }
            world.seen.used(fence);
        }
        world.seen.hand_over |= lease.used;
        me.streak = if lease.used { me.streak } else { 0 };
        lease.used = true;
        lease.holder = Some(task);
        lease.confirmed =
            lease.left >= terms.lease || (!terms.renew && lease.fresh && self.first_claim() >= terms.lease);
        lease.renewing = lease.renewing.map(|_| false);
        me.tasks[task].phase = Phase::Holding(terms.lease);
    }

    /// Whether a lease may linger when its hold ends: nobody here waits for it.
    pub(crate) fn may_linger(me: &Process) -> bool {
        !me.tasks.iter().any(|task| matches!(task.phase, Phase::Waiting | Phase::Late))
    }

    /// The hold of `task` ends in time: its guard is released, or dropped.
    pub(crate) fn end(&self, world: &mut World, process: usize, task: usize, end: End) {
        let me = &mut world.processes[process];
        me.tasks[task].phase = Phase::Idle;
        let Some(lease) = &mut me.lease else { return };
        lease.holder = None;
        if end == End::Linger {
            lease.lingers = true;
            lease.fresh = false;
            me.turn = None;
            return;
        }
        // A late task is worth to keep the lease for, but not when another process waits.
        let is_wanted = me.tasks.iter().any(|task| task.phase == Phase::Waiting)
            || lease.rival.is_none() && me.tasks.iter().any(|task| task.phase == Phase::Late);
        // What is dropped stays for the next task here, or for the keeper.
        let may_stay = is_wanted || end == End::Drop;
        let counts = is_wanted || self.keeps(Rule::StreakOfDrops);
        if may_stay && (!counts || self.may_hand_over(lease)) {
            me.streak += u8::from(lease.rival.is_some());
            return self.pass(world, process);
        }
        let (sequence, unused, is_awaited) = (lease.sequence, lease.fences, lease.rival.is_some());
        me.give_up_lease();
        match end {
            End::Drop => {
                me.send(KEEPERS, sequence, Verb::Release(unused, None), true);
                self.pass(world, process);
            }
            End::Release | End::Linger => {
                me.tasks[task].phase = Phase::Releasing(sequence, false);
                let again = is_wanted.then(|| {
                    me.last += 1;
                    me.asked = Some(Asked { sequence: me.last, unanswered: true, ..Asked::default() });
                    me.last
                });
                // With an ask in its place the turn stays until the store has answered.
                if again.is_none() {
                    self.pass(world, process);
                }
                let is_lone = self.deletes && again.is_none() && unused.0 >= unused.1 && !is_awaited;
                let verb = if is_lone { Verb::Delete } else { Verb::Release(unused, again) };
                world.processes[process].send(CALLERS, sequence, verb, true);
            }
        }
    }

    /// Rule L4.
    fn may_hand_over(&self, lease: &mut Lease) -> bool {
        let Some(hand_overs) = &mut lease.rival else { return true };
        *hand_overs += 1;
        *hand_overs <= STREAK || !self.keeps(Rule::Streak)
    }

    /// The body of a hold that has ended is polled: it is dropped instead, and only then its lease is released.
    pub(crate) fn drop_body(&self, world: &mut World, process: usize, task: usize) {
        if !self.keeps(Rule::LookFirst) {
            world.seen.breach = Some(Breach::StepWithoutLock);
        }
        let me = &mut world.processes[process];
        if let Phase::Lost(sequence, _) = me.tasks[task].phase {
            me.tasks[task].phase = Phase::Idle;
            me.given_up = me.given_up.max(sequence);
            me.send(KEEPERS, sequence, Verb::Release((0, 0), None), true);
            if me.forced.take_if(|forced| *forced == sequence).is_some() {
                me.send(KEEPERS, marked(sequence), Verb::Release((0, 0), None), true);
            }
            return;
        }
        me.tasks[task].phase = Phase::Idle;
        let Some(lease) = &mut me.lease else { return };
        lease.holder = None;
        // Rule L6.
        if self.keeps(Rule::WholeLease) || !me.tasks.iter().any(|task| task.phase == Phase::Waiting) {
            let (sequence, unused) = (lease.sequence, lease.fences);
            me.give_up_lease();
            me.send(KEEPERS, sequence, Verb::Release(unused, None), true);
        }
        self.pass(world, process);
    }

    /// A body nested in a hold without a fencing token draws one.
    pub(crate) fn borrow(world: &mut World, process: usize) {
        let me = &mut world.processes[process];
        if let Some(lease) = &me.lease {
            me.ask_for(lease.sequence, Verb::Draw(1));
        }
    }

    /// A task stops waiting: its time is up, or its future is dropped.
    pub(crate) fn give_up(&self, world: &mut World, process: usize, task: usize) {
        let me = &mut world.processes[process];
        let phase = std::mem::replace(&mut me.tasks[task].phase, Phase::Idle);
        me.tasks[task].asleep = false;
        if phase == Phase::Waiting {
            return;
        }
        me.forget_replies(|command| command.late == Some(task));
        if let Phase::Releasing(sequence, _) = phase {
            me.forget_replies(|command| command.sequence == sequence && command.verb.ends());
            // What the release carried along is the slot's to repeat or to withdraw.
            me.send(KEEPERS, sequence, Verb::Release((0, 0), None), true);
        }
        if me.turn == Some(task) {
            self.pass(world, process);
        }
    }

    /// The claim that this client reckons with.
    fn first_claim(&self) -> Ticks {
        if self.keeps(Rule::Claims) { crate::CLAIM } else { crate::LEASE }
    }

    /// A task reads the reply that it waits for.
    pub(crate) fn read_reply(
        &self,
        world: &mut World,
        process: usize,
        command: &Command,
        outcome: Outcome,
        ran: Ticks,
    ) {
        // Rule 7.
        let age = if self.keeps(Rule::FromSending) { command.age } else { 0 };
        let me = &mut world.processes[process];
        match command.verb {
            Verb::Claim | Verb::Ask(..) => {
                me.awaits = false;
                self.answered(me, command, outcome, ran);
            }
            Verb::Renew(wanted) => {
                me.awaits = false;
                match (&mut me.lease, outcome) {
                    (Some(lease), Outcome::Done) => {
                        lease.confirm(self.certain(wanted, age), self.keeps(Rule::FreshFences));
                        lease.fresh = true;
                    }
                    _ => forget_lease(world, process),
                }
            }
            Verb::Draw(_) if me.turn.is_some_and(|task| matches!(me.tasks[task].phase, Phase::Holding(_))) => {
                me.awaits = false;
                let Outcome::Drawn(fence) = outcome else { return self.revoke(world, process) };
                if let Some(lease) = me.lease.as_mut().filter(|_| self.keeps(Rule::NestedFences)) {
                    lease.fences = (0, 0);
                }
                world.seen.used(fence);
            }
            Verb::Draw(count) => {
                me.awaits = false;
                match (&mut me.lease, outcome) {
                    (Some(lease), Outcome::Drawn(first)) => lease.fences = (first, first + count),
                    _ => forget_lease(world, process),
                }
            }
            Verb::Release(_, again) => return self.released(world, process, command, outcome, ran, again),
            // Rule 26: somebody waits, or nothing was deleted. `release.lua` passes on what is free.
            Verb::Delete if outcome != Outcome::Done && self.keeps(Rule::LookBehind) => {
                me.send(CALLERS, command.sequence, Verb::Release((0, 0), None), true);
            }
            Verb::Delete => return self.released(world, process, command, outcome, ran, None),
        }
        self.drive(world, process);
    }

    /// Takes in the answer to an ask; `false` when it grants a token that nobody here waits for.
    pub(crate) fn answered(&self, me: &mut Process, command: &Command, outcome: Outcome, ran: Ticks) -> bool {
        let age = if self.keeps(Rule::FromSending) { command.age } else { 0 };
        let grant = match outcome {
            Outcome::Granted(grant) => Some(Grant { left: self.certain(grant.left, age), ..grant }),
            _ => None,
        };
        if let Some(asked) = me.asked.as_mut().filter(|asked| asked.sequence == command.sequence) {
            let anchor = Anchor { since: command.age - ran, slack: if age == 0 { 0 } else { ran } };
            asked.answer(grant, outcome, anchor, command.verb != Verb::Claim);
            return true;
        }
        if self.is_lost(me, command.sequence) {
            return true;
        }
        for task in &mut me.tasks {
            if let Phase::Releasing(sequence, again) = &mut task.phase
                && *sequence == command.sequence
                && grant.is_some()
            {
                *again = true;
                return true;
            }
        }
        grant.is_none() || me.lease.as_ref().is_some_and(|lease| lease.sequence == command.sequence)
    }

    /// Rule 17.
    pub(crate) fn is_lost(&self, me: &Process, sequence: u8) -> bool {
        let is_it = |task: &Task| matches!(task.phase, Phase::Lost(lost, _) if lost == sequence);
        self.keeps(Rule::LostIsNoStray) && me.tasks.iter().any(is_it)
    }

    fn released(
        &self,
        world: &mut World,
        process: usize,
        command: &Command,
        outcome: Outcome,
        ran: Ticks,
        again: Option<u8>,
    ) {
        let me = &mut world.processes[process];
        let is_it = |phase: &Phase| matches!(phase, Phase::Releasing(sequence, _) if *sequence == command.sequence);
        let Some(task) = me.tasks.iter().position(|task| is_it(&task.phase)) else { return };
        if me.tasks[task].phase == Phase::Releasing(command.sequence, true) {
            me.send(KEEPERS, command.sequence, Verb::Release((0, 0), None), true);
        }
        me.tasks[task].phase = Phase::Idle;
        if let (Some(again), Outcome::ReleasedAnd(answer)) = (again, outcome) {
            let outcome = match answer {
                AskedAgain::Granted(left, contended) => Outcome::Granted(Grant { left, contended, fences: (0, 0) }),
                AskedAgain::Busy => Outcome::Busy(true),
            };
            let asked = Command { sequence: again, verb: Verb::Ask(0, None), ..command.clone() };
            self.answered(me, &asked, outcome, ran);
        }
        if me.turn == Some(task) {
            self.pass(world, process);
        }
    }
}

/// The lease is gone in the store. A late copy of its claim may have brought it back, for as long as a claim lasts.
pub(crate) fn forget_lease(world: &mut World, process: usize) {
    let me = &mut world.processes[process];
    let Some(sequence) = me.lease.as_ref().map(|lease| lease.sequence) else { return };
    me.give_up_lease();
    if let Some((_, left)) = world.server.lock.filter(|(owner, _)| *owner == Token { process, sequence }) {
        excuse(world, Token { process, sequence }, left);
    }
}
