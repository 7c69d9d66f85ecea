//! The server: each command of docs/protocol.md as one step, in the words of the Lua files.

use crate::state::{
    AskedAgain, CALLERS, Command, Fences, Grant, Health, Message, Outcome, Ticks, Token, Verb, World, marked,
};
use crate::{Breach, CLAIM, DRIFT, LEASE, NEAR, Protocol, Rule};

impl Protocol {
    /// Executes the next command of a connection. The server may stand still for so long in the middle of a script: what
    /// a script sees of its keys, and what it reads from the clock, is as it was when it began.
    pub(crate) fn execute_next(&self, world: &mut World, process: usize, link: usize, stalled: Ticks) {
        let Some(begun) = world.processes[process].links[link].up.first().cloned() else { return };
        let lock = world.server.lock;
        for _ in 0..stalled {
            Self::tick(world, true);
        }
        let executed = world.processes[process].links[link].up.remove(0);
        world.server.lock = lock;
        let command = Command { verb: begun.verb, ..executed };
        let outcome = self.execute(world, process, &command, stalled);
        if stalled > 0 {
            let end = |(owner, left): (Token, Ticks)| (owner, left.saturating_sub(stalled));
            world.server.lock = world.server.lock.map(end).filter(|(_, left)| *left > 0);
        }
        // That a release is done matters to the keeper only while its connection can break.
        let is_noted = link == CALLERS || !command.verb.ends() || world.faults.breaks > 0;
        if command.wanted && is_noted {
            world.processes[process].links[link].down.push(Message::Reply(command, outcome, begun.age));
        }
    }

    /// Executes a command of `process`, which takes so long.
    pub(crate) fn execute(&self, world: &mut World, process: usize, command: &Command, stalled: Ticks) -> Outcome {
        let token = Token { process, sequence: command.sequence };
        let before = world.server.queue.get(NEAR - 1).copied();
        let outcome = self.execute_for(world, token, command, stalled);
        // Rule 5: who comes to be one of the first is told.
        let near = world.server.queue.get(NEAR - 1).copied();
        if let (Some(_), Some(near)) = (before, near.filter(|_| near != before && self.keeps(Rule::NearIsTold))) {
            publish(world, near.process, Message::Near(0));
        }
        outcome
    }

    fn execute_for(&self, world: &mut World, token: Token, command: &Command, stalled: Ticks) -> Outcome {
        match command.verb {
            Verb::Claim => self.claim(world, token),
            Verb::Ask(fences, time) => self.ask(world, token, fences, time, stalled),
            Verb::Renew(lease) => self.renew(world, token, lease),
            Verb::Draw(count) => draw_if_owned(world, token, count),
            Verb::Release(unused, again) => self.release(world, token, unused, again, stalled),
            Verb::Delete => self.delete(world, token),
        }
    }

    /// `SET name token NX GET PX claim`.
    fn claim(&self, world: &mut World, token: Token) -> Outcome {
        match world.server.lock {
            // Granted before: how much is left is not told.
            Some((owner, _)) if owner == token => Outcome::Granted(Grant { left: 0, contended: false, fences: (0, 0) }),
            Some(_) => Outcome::Busy(false),
            None => {
                excuse(world, token, CLAIM);
                world.server.lock = Some((token, self.first_lease()));
                Outcome::Granted(Grant { left: self.first_lease(), contended: false, fences: (0, 0) })
            }
        }
    }

    /// `ask.lua`, for one that waits in the queue.
    fn ask(&self, world: &mut World, token: Token, fences: u8, time: Option<Ticks>, stalled: Ticks) -> Outcome {
        if time == Some(0) && self.keeps(Rule::NotAfter) {
            return Outcome::Late;
        }
        if world.server.lock.is_none() {
            // Rule 4.
            let passed = if self.keeps(Rule::QueueFirst) { self.hand_off(world, Some(token), stalled) } else { None };
            if passed.is_none() {
                let ahead = world.server.queue.iter().take_while(|&&waiter| waiter != token);
                if ahead.into_iter().any(|waiter| world.processes[waiter.process].waits_for(waiter.sequence)) {
                    world.seen.breach = Some(Breach::Overtaken);
                }
                world.server.queue.retain(|&waiter| waiter != token);
                world.server.lock = Some((token, self.first_lease()));
            }
            if time != Some(0) && world.server.lock.is_some_and(|(owner, _)| owner == token) {
                excuse(world, token, CLAIM);
            }
        }
        let (owner, left) = world.server.lock.unwrap_or((token, 0));
        if owner == token {
            let fences = draw(world, fences);
            world.server.queue.retain(|&waiter| waiter != token);
            return Outcome::Granted(Grant { left, contended: !world.server.queue.is_empty(), fences });
        }
        let is_new = !world.server.queue.contains(&token);
        if is_new {
            world.server.queue.push(token);
            if world.processes[token.process].health == Health::Vanished {
                world.seen.allowed += CLAIM + 1;
            }
        }
        let is_near = world.server.queue.iter().take(NEAR).any(|&waiter| waiter == token);
        // Rule 5: those in front have notified the owner.
        if is_near || !is_new {
            publish(world, owner.process, Message::Wait);
        }
        if is_near || is_new { Outcome::Busy(true) } else { Outcome::Far(left) }
    }

    /// `hand_off` of `queue.lua`: the lock goes to the first waiter that can be told.
    fn hand_off(&self, world: &mut World, caller: Option<Token>, stalled: Ticks) -> Option<Token> {
        // Rule 7: else the clock is read after the lock was set, and the server stood still in between.
        let age = if self.keeps(Rule::OneReading) { stalled } else { 0 };
        let mut tried = false;
        while !world.server.queue.is_empty() {
            let token = world.server.queue.remove(0);
            let contended = !world.server.queue.is_empty();
            tried = true;
            world.server.lock = Some((token, self.first_lease()));
            if Some(token) == caller {
                return caller;
            }
            let told = if world.server.uncounted {
                publish(world, token.process, Message::Relayed(token.sequence, age, contended));
                // It finds out by asking again.
                world.seen.allowed += 1;
                false
            } else {
                publish(world, token.process, Message::Grant(token.sequence, age, contended))
            };
            // Rule 3.
            if told || !self.keeps(Rule::CanBeTold) {
                return Some(token);
            }
        }
        if tried {
            world.server.lock = None;
        }
        None
    }

    /// `release.lua`.
    fn release(&self, world: &mut World, token: Token, unused: Fences, again: Option<u8>, stalled: Ticks) -> Outcome {
        let again = again.map(|sequence| Token { sequence, ..token });
        let owned = self.is_owner(world, token);
        let (next, end) = unused;
        let is_last = owned && world.server.fence + 1 == end;
        if next < end && (is_last || !self.keeps(Rule::WriteBack)) {
            world.server.fence = next - 1;
        }
        world.server.queue.retain(|&waiter| waiter != token);
        world.server.queue.extend(again);
        if owned || world.server.lock.is_none() {
            world.server.lock = self.hand_off(world, again, stalled).and(world.server.lock);
            // What goes along with a release has no `not_after`.
            if let Some(again) = again.filter(|&again| world.server.lock.is_some_and(|(owner, _)| owner == again)) {
                excuse(world, again, CLAIM);
            }
        } else if let (Some(_), Some((owner, _))) = (again, world.server.lock) {
            publish(world, owner.process, Message::Wait);
        }
        match (again, world.server.lock) {
            (Some(again), Some((owner, left))) if owner == again && owned => {
                Outcome::ReleasedAnd(AskedAgain::Granted(left, !world.server.queue.is_empty()))
            }
            (Some(_), Some(_)) if owned => Outcome::ReleasedAnd(AskedAgain::Busy),
            _ if owned => Outcome::Done,
            _ => Outcome::NotOwned,
        }
    }

    /// `DELIFEQ name token`, `EXISTS queue`.
    fn delete(&self, world: &mut World, token: Token) -> Outcome {
        if !self.is_owner(world, token) {
            return Outcome::NotOwned;
        }
        world.server.lock = None;
        if world.server.queue.is_empty() { Outcome::Done } else { Outcome::Awaited }
    }

    /// `renew.lua`.
    fn renew(&self, world: &mut World, token: Token, lease: Ticks) -> Outcome {
        if !self.is_owner(world, token) {
            return Outcome::NotOwned;
        }
        excuse(world, token, lease);
        if let Some((_, left)) = &mut world.server.lock {
            // Rule 6.
            *left = if self.keeps(Rule::OnlyLonger) { lease.max(*left) } else { lease };
        }
        Outcome::Done
    }

    /// `force.lua`.
    pub(crate) fn force(&self, world: &mut World) {
        let Some((owner, left)) = world.server.lock else { return };
        // Rule 21: a lock that is released by force stays taken until its holder has stopped.
        world.server.lock = self.keeps(Rule::StaysForced).then(|| {
            let mark = Token { sequence: marked(owner.sequence), ..owner };
            (mark, left.min(CLAIM))
        });
        world.seen.excused += CLAIM;
        world.seen.allowed += CLAIM + 1;
        publish(world, owner.process, Message::Forced(owner.sequence));
    }

    /// Rule 10.
    fn is_owner(&self, world: &mut World, token: Token) -> bool {
        let Some((owner, _)) = world.server.lock else { return false };
        if owner != token && !self.keeps(Rule::OwnersToken) {
            world.seen.breach = Some(Breach::NotTheOwner);
            return true;
        }
        owner == token
    }

    /// Rule 11: the lease that a grant starts with.
    fn first_lease(&self) -> Ticks {
        if self.keeps(Rule::Claims) { CLAIM } else { LEASE }
    }

    /// How much of a lease its holder may count on, `age` ticks after it was asked for.
    pub(crate) fn certain(&self, lease: Ticks, age: Ticks) -> Ticks {
        let drift = if self.keeps(Rule::Drift) { DRIFT } else { 0 };
        lease.saturating_sub(drift).saturating_sub(age)
    }
}

/// What takes effect for a token that was given up lasts, and is found out a tick later.
pub(crate) fn excuse(world: &mut World, token: Token, lease: Ticks) {
    let process = &world.processes[token.process];
    if process.health != Health::Live || process.given_up >= token.sequence {
        world.seen.excused += lease;
        world.seen.allowed += lease + 1;
    }
}

/// `draw.lua`.
fn draw_if_owned(world: &mut World, token: Token, count: u8) -> Outcome {
    match world.server.lock {
        Some((owner, _)) if owner == token => Outcome::Drawn(draw(world, count).0),
        _ => Outcome::NotOwned,
    }
}

/// Rule 8, without the server's clock: that one only counts once the server has forgotten the last number.
fn draw(world: &mut World, count: u8) -> Fences {
    if count == 0 {
        return (0, 0);
    }
    let first = world.server.fence + 1;
    world.server.fence += count;
    (first, first + count)
}

/// Tells a process; `false` when nobody listens on its channel.
fn publish(world: &mut World, process: usize, message: Message) -> bool {
    let process = &mut world.processes[process];
    if process.health == Health::Live {
        let down = &mut process.links[CALLERS].down;
        // To hear twice in a row that somebody waits is to hear it once.
        if message != Message::Wait || down.last() != Some(&Message::Wait) {
            down.push(message);
        }
    }
    process.health != Health::Closed
}
