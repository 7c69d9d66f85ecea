//! A look at a lock, and taking a lock by force: only people and their tools use these.

use lock_wire::{Called, Link, text};
use redis::{Cmd, Value};

use super::reply::items;
use super::scripts::{self, Script};
use super::{RedisStore, helper_key, millis};
use crate::clock::Deadline;
use crate::share::Share;
use crate::store::{Forced, Seen, StoreError};
use crate::timing::CLAIM;
use crate::token::Token;

/// A look names at most this many waiting processes.
const NAMED_WAITERS: u32 = 1000;

impl RedisStore {
    pub(super) async fn look_at(&self, key: &str, deadline: Deadline) -> Result<Option<Seen>, StoreError> {
        let value = self.reach(&scripts::INSPECT, key, (u64::from(NAMED_WAITERS), None), deadline).await?;
        let fields = items(value).map_err(|_| StoreError::no_answer())?;
        match fields.as_slice() {
            [] => Ok(None),
            [Value::BulkString(owner), Value::Int(left), Value::Array(waiting), sharing @ ..] => Ok(Some(Seen {
                owner: Token::from_bytes(owner),
                frees_in: u64::try_from(*left).ok().map(std::time::Duration::from_millis),
                sharing: match sharing {
                    [Value::Array(sharing)] => sharing.iter().filter_map(lease_of_member).collect(),
                    _ => Vec::new(),
                },
                waiting: waiting.iter().filter_map(token_of_entry).collect(),
            })),
            _ => Err(StoreError::no_answer()),
        }
    }

    pub(super) async fn force_out(
        &self,
        key: &str,
        one: Option<(Share, Token)>,
        deadline: Deadline,
    ) -> Result<Forced, StoreError> {
        let member = one.map(|(share, token)| format!("{}|{}", share.capacity(), token.as_str()));
        match self.reach(&scripts::FORCE, key, (millis(CLAIM), member), deadline).await? {
            Value::Int(0) => Ok(Forced::Free),
            Value::Int(1) => Ok(Forced::Gone),
            marked => {
                text(marked).map(|marked| Forced::Leaving(Token::foreign(&marked))).ok_or_else(StoreError::no_answer)
            }
        }
    }

    async fn reach(
        &self,
        script: &Script,
        key: &str,
        (argument, member): (u64, Option<String>),
        deadline: Deadline,
    ) -> Result<Value, StoreError> {
        let arguments = |_: &Link, command: &mut Cmd| {
            command.arg(key);
            helper_key(command, key, "queue");
            helper_key(command, key, "shared");
            command.arg(argument).arg(&member);
        };
        match self.run(script, (key, 3), arguments, deadline).await {
            Err(error) if error.is_denied() => {
                Err(Box::pin(self.explain_refusal(error, key, None, None, deadline)).await)
            }
            outcome => outcome.map(|Called { value, .. }| value),
        }
    }
}

/// A shared lease: `<capacity>|<token>`.
fn lease_of_member(member: &Value) -> Option<(Share, Token)> {
    let Value::BulkString(member) = member else { return None };
    let member = String::from_utf8_lossy(member);
    let (capacity, token) = member.split_once('|')?;
    Some((Share::of_capacity(capacity.parse().ok()?), Token::foreign(token)))
}

/// The token of an entry of the queue: `<claim ms>|<token>`, or `<claim ms>s<capacity>|<token>`.
fn token_of_entry(entry: &Value) -> Option<Token> {
    let Value::BulkString(entry) = entry else { return None };
    let entry = String::from_utf8_lossy(entry);
    entry.split_once('|').map(|(_, token)| Token::foreign(token))
}
