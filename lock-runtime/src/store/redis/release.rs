//! How leases are released and asks withdrawn: by a command of the server or the script `free.lua` if that is enough, otherwise by
//! `release.lua`.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{Either, ready};
use lock_wire::{Called, Link};
use redis::Cmd;

use super::answer::{Freed, read_freed, read_released};
use super::command::{Delete, LockCommand};
use super::reply::items;
use super::scripts::{self, Script};
use super::tickets::add_capacity;
use super::verb::{Kind, Verb, one_by_one};
use super::{Outgoing, RedisStore, helper_key, keys_per_lock, lock_keys, millis};
use crate::clock::{Deadline, Drift};
use crate::observe;
use crate::share::Share;
use crate::store::{Answers, Ownership, Reach, Release, Retry, StoreError, each, exactly_one};
use crate::token::Token;

impl Verb for Release {
    type Answer = Ownership;

    async fn send(store: &RedisStore, releases: &[Self], deadline: Deadline) -> Answers<Ownership> {
        if releases.iter().any(|release| release.kept_until.is_some()) {
            store.run_rest(releases, deadline).await
        } else if releases.iter().all(Self::is_lone) {
            store.free_then_release(releases, deadline).await
        } else {
            Ok(Box::pin(store.release_or_split(releases, deadline)).await)
        }
    }

    fn key(&self) -> &str {
        &self.key
    }

    fn share(&self) -> Option<Share> {
        self.share
    }

    /// A lock that is to rest is not released.
    fn token_to_release(&self) -> Option<&Token> {
        self.kept_until.is_none().then_some(&self.token)
    }

    fn kind(&self) -> Kind {
        if self.kept_until.is_some() { Kind::Resting } else { Kind::of_share(self.share) }
    }

    /// `denied.lua` needs fewer rights, so it tries each release that the server refused for good, for whatever reason.
    fn is_explained(error: &StoreError) -> bool {
        error.retry == Retry::Never
    }
}

/// The outcome for locks that most likely have no waiters.
struct Freeing {
    /// `None` when all are done.
    each: Option<Vec<Freed>>,
    /// The command was sent twice, and the first one may have taken effect.
    repeated: bool,
}

impl RedisStore {
    /// Releases locks that most likely have no waiters: `free.lua` releases most of them, and `release.lua` the rest.
    async fn free_then_release(&self, releases: &[Release], deadline: Deadline) -> Answers<Ownership> {
        let freed = self.run_free(releases, deadline).await?;
        self.release_rest(releases, freed, deadline).await
    }

    /// Like [`free_then_release`](Self::free_then_release) for one release, without lists of answers if `free.lua` is enough.
    pub(super) fn free_one<'a>(
        &'a self,
        release: &'a Release,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Ownership, StoreError>> + Send + 'a {
        let releases = std::slice::from_ref(release);
        self.run_free(releases, deadline).then(move |freed| match freed {
            Ok(Freeing { each: None, .. }) => Either::Left(ready(Ok(Ownership::Owned))),
            // Boxed, because it is rare: otherwise every release's future would have room for it.
            freed => Either::Right(Box::pin(async move {
                let answers = match freed {
                    Ok(freed) => self.release_rest(releases, freed, deadline).await,
                    Err(error) => Err(error),
                };
                exactly_one(self.explained(releases, answers, deadline).await)
            })),
        })
    }

    /// Runs `release.lua` for those that are not done: it also passes on what is free and awaited (rule 26).
    async fn release_rest(&self, releases: &[Release], freeing: Freeing, deadline: Deadline) -> Answers<Ownership> {
        let Freeing { each, repeated } = freeing;
        let Some(each) = each else {
            return Ok(releases.iter().map(|_| Ok(Ownership::Owned)).collect());
        };
        let is_rest = |freed: &Freed| *freed != Freed::Done;
        let rest: Vec<_> =
            each.iter().zip(releases).filter(|(freed, _)| is_rest(freed)).map(|(_, rest)| rest.clone()).collect();
        let mut answers = Box::pin(self.release_or_split(&rest, deadline.anew())).await.into_iter();
        let merge = |(freed, release): (Freed, &Release)| {
            if freed == Freed::Done {
                return Ok(Ownership::Owned);
            }
            let released = match answers.next().unwrap_or_else(|| Err(StoreError::no_answer())) {
                Ok(released) => released,
                // The lock is free. Only its queue is unusable, and `release.lua` would also do no more than warn about that.
                Err(error) if freed == Freed::Awaited && is_of_queue(&error) => {
                    observe::queue_unusable(&release.key, &error.problem);
                    Ownership::Owned
                }
                Err(error) => return Err(error),
            };
            Ok(if freed == Freed::Awaited { Ownership::Owned } else { released.or_before(repeated) })
        };
        Ok(each.into_iter().zip(releases).map(merge).collect())
    }

    /// Runs `release.lua` for all releases, or for each alone if the server refuses the command: a lock's name that the user has no right
    /// to must not block the release of the other locks.
    async fn release_or_split(&self, releases: &[Release], deadline: Deadline) -> Vec<Result<Ownership, StoreError>> {
        match self.run_release(releases, deadline).await {
            Err(error) if error.retry == Retry::Never && releases.len() > 1 => {
                one_by_one(releases, |release| self.run_release(release, deadline.anew())).await
            }
            answers => each(answers, releases.len()),
        }
    }

    /// Frees locks: a single lock by the server's own command if it has one, otherwise by `free.lua`. If the server refuses, nothing is
    /// done yet.
    fn run_free<'a>(
        &'a self,
        releases: &'a [Release],
        deadline: Deadline,
    ) -> impl Future<Output = Result<Freeing, StoreError>> + Send + 'a {
        if let [release] = releases
            && let Some(by) = self.servers.at(&release.key, |link| Delete::of(link)).flatten()
        {
            return Either::Left(self.delete(release, by, deadline));
        }
        let none_with = |repeated| Freeing { each: Some(vec![Freed::Not; releases.len()]), repeated };
        Either::Right(self.call_free(releases, deadline).map(move |called| match called {
            Ok(Called { value, repeated, .. }) => Ok(Freeing { each: read_freed(value, releases.len())?, repeated }),
            // Nothing was changed: the server denied the script itself, or its only write.
            Err(error) if error.is_denied() => Ok(none_with(false)),
            // The script may have released some of several locks before it failed; a single release may have run together with others.
            Err(error) if error.retry == Retry::Never => Ok(none_with(releases.len() > 1 || !self.servers.are_many())),
            Err(error) => Err(error),
        }))
    }

    /// Frees a lock by the server's own command. After a refusal this connection does not use the command again.
    fn delete<'a>(
        &'a self,
        release: &'a Release,
        by: Delete,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Freeing, StoreError>> + Send + 'a {
        let called = self.servers.call(
            &release.key,
            move |_: &Link| Outgoing::of(LockCommand::Delete { release, by }),
            deadline,
        );
        called.map(move |called| match called.map_err(|error| self.name_failure(error)) {
            Ok(Called { value, repeated, .. }) => Ok(Freeing { each: read_freed(value, 1)?, repeated }),
            Err(error) if error.retry == Retry::Never => {
                self.servers.at(&release.key, |link| link.clear_marks(by.mark()));
                Ok(Freeing { each: Some(vec![Freed::Not]), repeated: false })
            }
            Err(error) => Err(error),
        })
    }

    /// A single release runs together with those of other tasks. In a cluster all keys of a script must be in one slot.
    fn call_free<'a>(
        &'a self,
        releases: &'a [Release],
        deadline: Deadline,
    ) -> impl Future<Output = Result<Called, StoreError>> + Send + 'a {
        match releases {
            [release] if !self.servers.are_many() => {
                let command = |_: &Link, is_known| Outgoing::of(LockCommand::Free { release, is_known });
                Either::Left(self.run_by(&scripts::FREE, &release.key, command, deadline))
            }
            _ => Either::Right(Box::pin(async move {
                let arguments = |_: &Link, command: &mut Cmd| free_arguments(command, releases);
                let keys = (first_key(releases), 2 * releases.len());
                self.run(&scripts::FREE, keys, arguments, deadline).await
            })),
        }
    }

    /// Runs `rest.lua`: each lease then lasts only as long as others are to be kept out.
    async fn run_rest(&self, releases: &[Release], deadline: Deadline) -> Answers<Ownership> {
        let arguments = |link: &Link, command: &mut Cmd| rest_arguments(command, releases, link.drift());
        let keys = (first_key(releases), 2 * releases.len());
        let Called { value, link, .. } = self.run(&scripts::REST, keys, arguments, deadline).await?;
        let answers = items(value).map_err(|_| StoreError::no_answer())?;
        let read = |(answer, release)| read_released(answer, release).map_err(|error| error.of(&link));
        Ok(answers.into_iter().zip(releases).map(read).collect())
    }

    /// Runs `release.lua`, which also passes a lock on to the first process in its queue.
    async fn run_release(&self, releases: &[Release], deadline: Deadline) -> Answers<Ownership> {
        let (script, keys_each) = script_of(releases);
        let arguments = |link: &Link, command: &mut Cmd| {
            release_arguments(command, releases);
            if let Some(tag) = link.shard_tag(first_key(releases)) {
                command.arg(tag);
            }
        };
        let keys = (first_key(releases), keys_each * releases.len());
        let Called { value, repeated, link, .. } = self.run(script, keys, arguments, deadline).await?;
        let answers = items(value).map_err(|_| StoreError::no_answer())?;
        let read = |(answer, release)| {
            let ownership = read_released(answer, release).map_err(|error| error.of(&link))?;
            // The release was sent before, and may have taken effect then. But a lock that was given away still has its ticket to release.
            Ok(ownership.or_before(repeated && release.or_ticket.is_none()))
        };
        Ok(answers.into_iter().zip(releases).map(read).collect())
    }
}

/// Whether `release.lua` is refused for good because of the queue of a lock that is free.
fn is_of_queue(error: &StoreError) -> bool {
    mutant!(BusyIsUnusable => return error.reach == Reach::Refused && !error.is_denied());
    error.reach == Reach::Refused && error.retry == Retry::Never && !error.is_denied()
}

/// A withdrawal whose answer is not read. It contains the script's text: only an answer could tell that the server does not know the
/// digest.
pub(super) fn withdrawal_command(release: &Release) -> Cmd {
    let releases = std::slice::from_ref(release);
    let (script, keys) = script_of(releases);
    script.by_text(keys, &|command: &mut Cmd| release_arguments(command, releases))
}

/// The script for these releases, which are all shared or all exclusive, and its number of keys for each.
fn script_of(releases: &[Release]) -> (&'static Script, usize) {
    let is_shared = releases.iter().any(Verb::is_shared);
    (if is_shared { &scripts::SHARED_RELEASE } else { &scripts::RELEASE }, keys_per_lock(is_shared))
}

fn first_key(releases: &[Release]) -> &str {
    releases.first().map_or("", |release| &release.key)
}

pub(super) fn release_arguments(command: &mut Cmd, releases: &[Release]) {
    for release in releases {
        lock_keys(command, &release.key, release.is_shared());
    }
    for release in releases {
        command.arg(release.token.as_str()).arg(millis(release.claim));
        if let Some(share) = release.share {
            command.arg(share.capacity());
        } else {
            let (reserved, used) = release.unused_fences.unwrap_or((0, 0));
            command.arg(reserved).arg(used);
        }
    }
}

fn rest_arguments(command: &mut Cmd, releases: &[Release], drift: Drift) {
    for release in releases {
        command.arg(&*release.key);
        helper_key(command, &release.key, "shared");
    }
    for release in releases {
        let rest = release.kept_until.as_ref().map_or(Duration::ZERO, |until| until.remaining());
        command.arg(release.token.as_str());
        add_capacity(command, release.share);
        command.arg(millis(drift.lease_for(rest))).arg(u8::from(release.is_delay));
    }
}

pub(super) fn free_arguments(command: &mut Cmd, releases: &[Release]) {
    for release in releases {
        command.arg(&*release.key);
    }
    for release in releases {
        helper_key(command, &release.key, "queue");
    }
    for release in releases {
        command.arg(release.token.as_str());
    }
}
