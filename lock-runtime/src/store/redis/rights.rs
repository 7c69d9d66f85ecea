//! The server's user may not do all that the scripts do: what is missing is named, and no lock is left behind.
//!
//! A script is refused as a whole, or half-way. Only then is any of this run: `denied.lua` gives back what can be given
//! back, and asks the server which rights are missing, which its refusal does not always say.

use redis::{Cmd, FromRedisValue};

use super::link::Link;
use super::{RedisStore, scripts};
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::store::{Answer, Answers, Ask, Release, Released, Renewal, Renewed, Retry, StoreError};

/// Whether any of it was refused for lack of a right.
pub(super) fn is_denied<T>(answers: &Answers<T>) -> bool {
    has_error(answers, StoreError::is_denied)
}

/// Whether the server refused any of it for good, for whatever reason: a release is then tried by `denied.lua` as well,
/// which needs less.
pub(super) fn is_refused_for_good<T>(answers: &Answers<T>) -> bool {
    has_error(answers, is_refused)
}

fn has_error<T>(answers: &Answers<T>, is_meant: fn(&StoreError) -> bool) -> bool {
    match answers {
        Ok(answers) => answers.iter().any(|answer| answer.as_ref().is_err_and(is_meant)),
        Err(error) => is_meant(error),
    }
}

fn is_refused(error: &StoreError) -> bool {
    error.retry == Retry::Never
}

/// Each lock, and the token to give it back from.
fn owners(releases: &[Release]) -> impl Iterator<Item = (&str, &str)> {
    releases.iter().map(|release| (&*release.key, release.token.as_str()))
}

fn lacking(missing: &[String]) -> String {
    format!("the server's user lacks {}; \"Rights\" in docs/protocol.md has the whole list", missing.join(" "))
}

impl RedisStore {
    pub(super) async fn explain_asks(
        &self,
        asks: &[Ask],
        answers: Answers<Answer>,
        deadline: Deadline,
    ) -> Answers<Answer> {
        let of = asks.iter().map(|ask| (&*ask.key, ask.token.as_str()));
        Box::pin(self.explain_each(of, answers, StoreError::is_denied, deadline)).await
    }

    pub(super) async fn explain_renewals(
        &self,
        renewals: &[Renewal],
        answers: Answers<Renewed>,
        deadline: Deadline,
    ) -> Answers<Renewed> {
        // What is held is held on, for as long as the server knows of it.
        let of = renewals.iter().map(|renewal| (&*renewal.key, ""));
        Box::pin(self.explain_each(of, answers, StoreError::is_denied, deadline)).await
    }

    pub(super) async fn explain_releases(
        &self,
        releases: &[Release],
        answers: Answers<Released>,
        deadline: Deadline,
    ) -> Answers<Released> {
        Box::pin(self.explain_each(owners(releases), answers, is_refused, deadline)).await
    }

    /// `of`: each lock, and the token to give it back from. `is_meant`: which errors are to be explained.
    async fn explain_each<'a, T>(
        &self,
        mut of: impl Iterator<Item = (&'a str, &'a str)>,
        answers: Answers<T>,
        is_meant: fn(&StoreError) -> bool,
        deadline: Deadline,
    ) -> Answers<T> {
        match answers {
            Err(error) => {
                let (key, token) = of.next().unwrap_or_default();
                Err(self.explained(error, key, token, deadline).await)
            }
            Ok(answers) => {
                let mut explained = Vec::with_capacity(answers.len());
                for (answer, (key, token)) in answers.into_iter().zip(of) {
                    explained.push(match answer {
                        Err(error) if is_meant(&error) => Err(self.explained(error, key, token, deadline).await),
                        answer => answer,
                    });
                }
                Ok(explained)
            }
        }
    }

    /// The error with the missing rights named, as far as they can be found out.
    pub(super) async fn explained(&self, error: StoreError, key: &str, token: &str, deadline: Deadline) -> StoreError {
        let arguments = |command: &mut Cmd| {
            command.arg(key).arg(token);
        };
        let command = |_: &Link| scripts::DENIED.by_text(1, &arguments);
        let Ok(called) = self.servers.call(key, &command, deadline.counted_from(Moment::now())).await else {
            return error;
        };
        match Vec::<String>::from_redis_value(called.value) {
            Ok(missing) if !missing.is_empty() => {
                let problem = BackendError::caused_by(lacking(&missing), error.problem);
                StoreError { problem, ..error }
            }
            _ => error,
        }
    }
}
