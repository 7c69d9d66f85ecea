//! [`Outgoing`]: a command. [`Called`]: a reply, and a command that waits for one.

use std::sync::Arc;

use redis::{Cmd, Value};

use super::super::hash_slot::slot_of;
use super::super::millis;
use super::super::wire::{Delete, LoneRelease, Sender, Sent, encode};
use super::{Channel, Link, Live};
use crate::clock::Moment;
use crate::store::{Ask, Release};
use crate::token::Token;

/// A command, as it goes out on a connection.
pub(in super::super) struct Outgoing {
    pub(super) command: Command,
    /// Whether the server is to tell when somebody else changes what the command reads.
    pub(in super::super) arms: bool,
    /// The command asks for a lock: it is not sent while there is no room.
    pub(in super::super) is_ask: bool,
    /// The command may wait in the queue of a lock in this slot. In a cluster the connection hears the slot's channel by then.
    pub(super) listens: Option<u16>,
}

impl From<Cmd> for Outgoing {
    fn from(command: Cmd) -> Self {
        Self { command: Command::Own(command), arms: false, is_ask: false, listens: None }
    }
}

pub(super) enum Command {
    /// A command of its own.
    Own(Cmd),
    /// A claim: `SET … NX PX`. `tells`: when it is refused, the reply is the owner's token.
    Claim { lock: Arc<str>, token: Token, millis: u64, tells: bool },
    /// A release that goes together with others.
    Free { release: Release, is_known: bool },
    /// A release by the server's own command.
    Delete { release: Release, by: Delete },
}

impl Command {
    pub(super) fn send<'a>(&'a self, link: &'a Link, sender: Sender<'a>) -> Sent<'a> {
        match self {
            Self::Free { release, is_known } => sender.free(lone(release, *is_known), || link.note_commands(1)),
            Self::Delete { release, by } => {
                link.note_commands(2);
                sender.delete(lone(release, false), *by)
            }
            Self::Claim { lock, token, millis, tells: true } => {
                link.note_commands(2);
                sender.claim_or_tell(lock, token.as_str(), *millis)
            }
            Self::Own(_) | Self::Claim { .. } => {
                link.note_commands(1);
                sender.send_written(|output| self.write(output))
            }
        }
    }

    /// Writes the command for when it goes alone.
    pub(super) fn write(&self, output: &mut Vec<u8>) {
        match self {
            Self::Own(command) => command.write_packed_command(output),
            Self::Claim { lock, token, millis, .. } => encode::claim(output, lock, token.as_str(), *millis),
            Self::Free { release, is_known } => lone(release, *is_known).write(output),
            // Behind an `ASKING` goes one command only, here and above.
            Self::Delete { release, .. } => lone(release, false).write(output),
        }
    }
}

fn lone(release: &Release, is_known: bool) -> LoneRelease<'_> {
    let (lock, token) = (&*release.key, release.token.as_str());
    LoneRelease { lock, token, is_known, are_more: release.beside_others }
}

impl Outgoing {
    /// The command, which arms alarms.
    pub(in super::super) fn arming(command: Cmd, arms: bool) -> Self {
        Self { arms, ..Self::from(command) }
    }

    /// The command, which may wait in the queue of `key`.
    pub(in super::super) fn waiting(command: Cmd, key: Option<&str>) -> Self {
        Self { listens: key.map(slot_of), ..Self::from(command) }
    }

    /// The same for a command that asks for locks, and does nothing else.
    pub(in super::super) fn ask(command: Cmd, key: Option<&str>) -> Self {
        Self { is_ask: true, ..Self::waiting(command, key) }
    }

    /// The claim of a free lock. Who waits asks for the owner by script. A single try has but this answer.
    pub(in super::super) fn claim(ask: &Ask) -> Self {
        let (lock, token, millis) = (Arc::clone(&ask.key), ask.token.clone(), millis(ask.claim));
        Self {
            command: Command::Claim { lock, token, millis, tells: !ask.wait },
            arms: false,
            is_ask: true,
            listens: None,
        }
    }

    /// A release by `free.lua`, which goes together with others. `is_known` says that the server knows the script.
    pub(in super::super) fn free(release: Release, is_known: bool) -> Self {
        Self { command: Command::Free { release, is_known }, arms: false, is_ask: false, listens: None }
    }

    /// A release by the server's own command.
    pub(in super::super) fn delete(release: Release, by: Delete) -> Self {
        Self { command: Command::Delete { release, by }, arms: false, is_ask: false, listens: None }
    }

    /// The command that goes in front, in the same piece.
    pub(super) fn first(&self, live: &Live, channel: Option<&Channel>) -> Option<Cmd> {
        if self.arms && live.has_alarms {
            return Some(arming());
        }
        let channel = channel.filter(|channel| channel.is_of_callers())?;
        live.shard.as_ref()?.subscription(self.listens?, channel)
    }

    /// Takes in the answer to the command in front. Its refusal is no failure of the command behind it.
    pub(super) fn on_first(&self, live: &Live, answer: &Value) {
        if let (Some(slot), Some(shard)) = (self.listens, &live.shard) {
            shard.on_subscribed(slot, answer);
        }
    }
}

/// Has the server tell when somebody else changes what the next command reads.
pub(super) fn arming() -> Cmd {
    redis::cmd("CLIENT").arg("CACHING").arg("YES").clone()
}

/// A reply.
pub(in super::super) struct Called {
    pub(in super::super) value: Value,
    /// The instant before the command was sent.
    pub(in super::super) sent: Moment,
    /// The command was sent before, and may have taken effect then.
    pub(in super::super) repeated: bool,
    /// The connection on which the reply came.
    pub(in super::super) live: Arc<Live>,
    pub(in super::super) link: Arc<Link>,
}

impl Called {
    pub(in super::super) fn take_value(&mut self) -> Value {
        std::mem::replace(&mut self.value, Value::Nil)
    }
}
