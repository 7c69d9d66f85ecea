//! What the Lua files do with a ticket. Each command is one step.

use super::{Answer, CLAIM, Command, GIVER, KEPT, Rule, Tickets, Value, World};

impl Tickets {
    pub(super) fn execute(self, world: &mut World, command: Command) -> Answer {
        match command {
            Command::Give => self.give(world),
            Command::Adopt(_, 0) if self.has(Rule::NotAfter) => Answer::TooLate,
            Command::Adopt(client, _) => self.adopt(world, client),
            Command::Release(value) => {
                if world.lock.is_some_and(|(owner, _)| owner == value) {
                    world.end_lock();
                }
                Answer::Released
            }
        }
    }

    fn give(self, world: &mut World) -> Answer {
        match &mut world.lock {
            Some((value @ Value::Token(GIVER), left)) => {
                if self.has(Rule::Replaces) {
                    *value = Value::Ticket;
                }
                *left = KEPT;
                Answer::Given(true)
            }
            Some((Value::Ticket, _)) => Answer::Given(true),
            _ => Answer::Given(false),
        }
    }

    fn adopt(self, world: &mut World, client: usize) -> Answer {
        let token = Value::Token(client);
        match &mut world.lock {
            Some((value, left)) if *value == Value::Ticket || *value != token && !self.has(Rule::Compares) => {
                (*value, *left) = (token, CLAIM);
                Answer::Granted(CLAIM)
            }
            Some((value, left)) if *value == token && self.has(Rule::Repeats) => Answer::Granted(*left),
            lock => {
                // It is over when its time was, when it was given back, or when another adopter has the lock.
                let other = lock.is_some_and(
                    |(value, _)| matches!(value, Value::Token(other) if other != client && other != GIVER),
                );
                world.seen.is_told_wrong |= !world.seen.is_over && !other;
                Answer::Over
            }
        }
    }
}
