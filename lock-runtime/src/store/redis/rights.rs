//! The server's user may lack some of the rights that the scripts need: this names them, and releases as much as possible.
//!
//! The server refuses a script as a whole, or half-way. Only then does any of this run: `denied.lua` does a release as far as the user may,
//! and asks the server which rights are missing. The server's refusal does not always name them.

use futures_util::future::join_all;
use lock_wire::Link;
use redis::{Cmd, FromRedisValue};

use super::verb::Verb;
use super::{Outgoing, RedisStore, scripts};
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::share::Share;
use crate::store::{Answers, StoreError};
use crate::token::Token;

impl RedisStore {
    /// The answers, with the missing rights named in each error that [`Verb::is_explained`] selects.
    pub(super) async fn explain<V: Verb>(
        &self,
        items: &[V],
        answers: Answers<V::Answer>,
        deadline: Deadline,
    ) -> Answers<V::Answer> {
        let explain = async |error, item: &V| {
            self.explain_refusal(error, item.key(), item.token_to_release(), item.share(), deadline).await
        };
        let answers = match (answers, items.first()) {
            (Ok(answers), _) => answers,
            (Err(error), Some(first)) => return Err(explain(error, first).await),
            (Err(error), None) => return Err(error),
        };
        let explained = async |(answer, item)| match answer {
            Err(error) if V::is_explained(&error) => Err(explain(error, item).await),
            answer => answer,
        };
        mutant!(ExplainedOneByOne => {
            let mut all = Vec::new();
            for answer in answers.into_iter().zip(items) {
                all.push(explained(answer).await);
            }
            return Ok(all);
        });
        // All at the same time: each is a command, and the locks wait for it.
        Ok(join_all(answers.into_iter().zip(items).map(explained)).await)
    }

    /// The error with the missing rights named, as far as the server tells them. Releases the `token`, if there is one.
    pub(super) async fn explain_refusal(
        &self,
        error: StoreError,
        key: &str,
        token: Option<&Token>,
        share: Option<Share>,
        deadline: Deadline,
    ) -> StoreError {
        let arguments = |command: &mut Cmd| {
            let capacity = share.map(|share| share.capacity().to_string());
            command.arg(key).arg(token.map_or("", Token::as_str)).arg(capacity.as_deref().unwrap_or(""));
        };
        let command = |_: &Link| Outgoing::from(scripts::DENIED.by_text(1, &arguments));
        let deadline = if token.is_some() { deadline.anew() } else { deadline.counted_from(Moment::now()) };
        let Ok(called) = self.servers.call(key, command, deadline).await else { return error };
        match Vec::<String>::from_redis_value(called.value.clone()) {
            Ok(missing) if !missing.is_empty() => {
                let server = called.link.server();
                let problem = BackendError::caused_by(lacking(&missing), error.problem).of(server);
                StoreError { problem, ..error }
            }
            _ => error,
        }
    }
}

fn lacking(missing: &[String]) -> String {
    format!("the server's user lacks {}; \"Rights\" in docs/protocol.md has the whole list", missing.join(" "))
}
