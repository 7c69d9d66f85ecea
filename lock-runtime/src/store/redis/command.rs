//! [`LockCommand`]: how the commands that each lock needs are written and grouped, and what their replies say.

use lock_wire::encode::{bulk, number};
use lock_wire::{Columns, Command, Grouped, Link, Merge, Sender, Sent};
use redis::{Cmd, Value};

use super::{millis, scripts};
use crate::store::{Ask, Release};

/// Releases by `free.lua` that go out in the same write.
static FREED: Grouped =
    Grouped { text: || scripts::FREE.text(), digest: || scripts::FREE.digest(), keys: 2, most: 64, split: answers };
/// Whether a claim was granted, and the value at the lock's key.
static CLAIMED: Merge = Merge { count: 2, merge: conclude_claim, is_kept: false };
/// Whether a lock was deleted, and whether there is a queue. A release is sent even if its task is gone.
static DELETED: Merge = Merge { count: 2, merge: conclude_deletion, is_kept: true };

/// A command about locks.
pub(super) enum LockCommand<'a> {
    /// Any other command.
    Own(Cmd),
    /// A claim: `SET … NX PX`. `tells`: the reply to a refusal is the owner's token.
    Claim(&'a Ask),
    /// A release that is sent together with others. `is_known` says that the server knows the script.
    Free { release: &'a Release, is_known: bool },
    /// A release by the server's own command.
    Delete { release: &'a Release, by: Delete },
}

impl From<Cmd> for LockCommand<'_> {
    fn from(command: Cmd) -> Self {
        Self::Own(command)
    }
}

impl Command for LockCommand<'_> {
    fn write(&self, output: &mut Vec<u8>) {
        match self {
            Self::Own(command) => command.write_packed_command(output),
            Self::Claim(ask) => claim(output, &ask.key, ask.token.as_str(), millis(ask.claim)),
            Self::Free { release, is_known } => FREED.write_alone(*is_known, |columns| free(columns, release), output),
            // `ASKING` applies to one command only, here and above.
            Self::Delete { release, .. } => FREED.write_alone(false, |columns| free(columns, release), output),
        }
    }

    fn send<'s>(&'s self, link: &'s Link, sender: Sender<'s>) -> Sent<'s> {
        match self {
            Self::Free { release, is_known } => {
                let on_run = || link.note_commands(1);
                let sender = sender.followed(release.beside_others);
                sender.send_grouped(&FREED, *is_known, |columns| free(columns, release), on_run)
            }
            Self::Delete { release, by } => {
                link.note_commands(2);
                let (lock, token) = (&*release.key, release.token.as_str());
                let sender = sender.followed(release.beside_others);
                sender.send_merged(&DELETED, |output| delete(output, lock, token, *by))
            }
            // A waiter asks for the owner by script, but a single try has only this answer.
            Self::Claim(ask) if !ask.wait => {
                link.note_commands(2);
                sender.send_merged(&CLAIMED, |output| {
                    self.write(output);
                    owner(output, &ask.key);
                })
            }
            Self::Own(_) | Self::Claim(_) => {
                link.note_commands(1);
                sender.send_written(|output| self.write(output))
            }
        }
    }
}

/// The arguments of `free.lua` for one release.
fn free([locks, queues, tokens]: &mut Columns, release: &Release) {
    bulk(locks, &[&release.key]);
    bulk(queues, &["{", &release.key, "}:queue"]);
    bulk(tokens, &[release.token.as_str()]);
}

/// `SET lock token NX PX milliseconds`
fn claim(output: &mut Vec<u8>, lock: &str, token: &str, millis: u64) {
    output.extend_from_slice(b"*6\r\n$3\r\nSET\r\n");
    bulk(output, &[lock]);
    bulk(output, &[token]);
    output.extend_from_slice(b"$2\r\nNX\r\n$2\r\nPX\r\n");
    number(output, millis);
}

/// `GETRANGE lock 0 1023`: the owner's token, which is shorter. Another client's value may have any size.
fn owner(output: &mut Vec<u8>, lock: &str) {
    output.extend_from_slice(b"*4\r\n$8\r\nGETRANGE\r\n");
    bulk(output, &[lock]);
    output.extend_from_slice(b"$1\r\n0\r\n$4\r\n1023\r\n");
}

/// A server's own command that compares and deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delete {
    /// `DELIFEQ key value`, of Valkey 9.
    IfEq,
    /// `DELEX key IFEQ value`, of Redis 8.4.
    Ex,
}

impl Delete {
    /// The command by which the server deletes a lock that holds a certain token; `None` if it has none, or the user may not use it.
    pub(super) fn of(link: &Link) -> Option<Self> {
        [Self::IfEq, Self::Ex].into_iter().find(|by| link.has_mark(by.mark()))
    }

    /// The mark of a server that has the command. The scripts use the other bits.
    pub(super) fn mark(self) -> u32 {
        match self {
            Self::IfEq => 1 << 30,
            Self::Ex => 1 << 31,
        }
    }
}

/// Deletes the lock if it holds the token, and reports whether there is a queue for it: `EXISTS` of one key.
fn delete(output: &mut Vec<u8>, lock: &str, token: &str, delete: Delete) {
    output.extend_from_slice(match delete {
        Delete::IfEq => b"*3\r\n$7\r\nDELIFEQ\r\n",
        Delete::Ex => b"*4\r\n$5\r\nDELEX\r\n",
    });
    bulk(output, &[lock]);
    if delete == Delete::Ex {
        output.extend_from_slice(b"$4\r\nIFEQ\r\n");
    }
    bulk(output, &[token]);
    output.extend_from_slice(b"*2\r\n$6\r\nEXISTS\r\n");
    bulk(output, &["{", lock, "}:queue"]);
}

/// The replies as `free.lua` gives them for one of several releases: 2 if the lock was deleted and has waiters, or may have some, so it has
/// to be passed on.
fn conclude_deletion(replies: Vec<Value>) -> Value {
    let Ok([deleted, queues]) = <[Value; 2]>::try_from(replies) else { return Value::Nil };
    mutant!(DeletedUnseen => if deleted == Value::Int(1) {
        return deleted;
    });
    match (deleted, queues) {
        (Value::Int(1), Value::Int(0)) => Value::Int(1),
        (Value::Int(1), _) => Value::Array(vec![Value::Int(2)]),
        (error @ Value::ServerError(_), _) => error,
        _ => Value::Array(vec![Value::Int(0)]),
    }
}

/// The reply to a claim; after a refusal the value at the lock's key. A user may lack the right to read it: then the owner is unknown.
fn conclude_claim(replies: Vec<Value>) -> Value {
    match <[Value; 2]>::try_from(replies) {
        Ok([Value::Nil, Value::ServerError(_)]) | Err(_) => Value::Nil,
        Ok([Value::Nil, owner]) => owner,
        Ok([claimed, _]) => claimed,
    }
}

/// Splits one reply into the answers to this many releases: what the script would have answered to each alone.
fn answers(reply: Value, count: usize) -> Vec<Value> {
    match reply {
        Value::Array(all) if all.len() == count => {
            mutant!(FirstAnswerForAll => return vec![Value::Array(all.into_iter().take(1).collect()); count]);
            all.into_iter().map(|one| Value::Array(vec![one])).collect()
        }
        Value::Int(freed) if usize::try_from(freed) == Ok(count) => vec![Value::Int(1); count],
        reply => vec![reply; count],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mutants::{Mutant, Seeded};

    #[test]
    fn each_release_has_the_answer_that_it_would_have_alone() {
        let list = |all: &[i64]| Value::Array(all.iter().copied().map(Value::Int).collect());
        for (bug, reply, expected) in [
            (None, Value::Int(3), [1, 1, 1].map(Value::Int)),
            (None, list(&[1, 0, 1]), [1, 0, 1].map(|one| list(&[one]))),
            (Some(Mutant::FirstAnswerForAll), list(&[1, 0, 1]), [1, 1, 1].map(|one| list(&[one]))),
            (None, Value::Nil, [Value::Nil, Value::Nil, Value::Nil]),
        ] {
            let _seeded = Seeded::begin(bug);
            assert_eq!(answers(reply, 3), expected, "{bug:?}");
        }
        assert_eq!(answers(list(&[0]), 1), [list(&[0])]);
    }

    proptest! {
        #[test]
        fn a_claim_is_written_as_the_redis_crate_writes_it(lock in ".*", token in ".*", millis: u64) {
            let mut written = Vec::new();
            claim(&mut written, &lock, &token, millis);
            let mut command = redis::cmd("SET");
            command.arg(&lock).arg(&token).arg("NX").arg("PX").arg(millis);
            prop_assert_eq!(written, command.get_packed_command());
            let mut written = Vec::new();
            owner(&mut written, &lock);
            prop_assert_eq!(written, redis::cmd("GETRANGE").arg(&lock).arg(0).arg(1023).get_packed_command());
        }

        #[test]
        fn a_deletion_is_written_as_the_redis_crate_writes_it(lock in ".*", token in ".*") {
            let queue = format!("{{{lock}}}:queue");
            for (form, name, word) in [(Delete::IfEq, "DELIFEQ", None), (Delete::Ex, "DELEX", Some("IFEQ"))] {
                let mut written = Vec::new();
                delete(&mut written, &lock, &token, form);
                let mut commands = redis::cmd(name).arg(&lock).arg(word).arg(&token).get_packed_command();
                commands.extend(redis::cmd("EXISTS").arg(&queue).get_packed_command());
                prop_assert_eq!(written, commands);
            }
        }
    }
}
