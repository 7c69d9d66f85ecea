//! The store on Redis or Valkey servers. docs/protocol.md describes the wire format.

use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::Either;
use lock_wire::{CallError, Called, Link, Servers};

use super::{
    Adoption, Answer, Answers, Ask, Connection, Events, Forced, Giving, Ownership, Release, Renewal, Renewed, Seen,
    Store, StoreError, StoreKind, TicketAnswer, exactly_one,
};
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::share::Share;
use crate::token::Token;
use ::redis::{Cmd, RedisWrite};

mod answer;
mod ask;
mod command;
mod confirm;
pub(crate) mod connections;
mod eviction;
pub(crate) mod failure;
mod push;
mod reach;
mod release;
mod renewal;
mod replicas;
mod reply;
mod rights;
mod scripts;
#[cfg(test)]
mod tests;
mod tickets;
mod verb;
mod vote;
mod voter;

use answer::read_drawn;
use command::LockCommand;
use eviction::warn_of_eviction;
use failure::problem;
use push::News;
use scripts::Script;
use voter::check_vote_on_fences;
pub(crate) use voter::lacks_vote;

/// A command about locks, as it is sent on a connection.
type Outgoing<'a> = lock_wire::Outgoing<LockCommand<'a>>;

/// The store over one connection to each server. Clones share the connections.
#[derive(Clone)]
pub(crate) struct RedisStore {
    servers: Servers,
    news: Arc<News>,
}

impl RedisStore {
    /// Connects; in a cluster, fetches the map of the masters.
    pub(crate) async fn connect(&self) -> Result<(), BackendError> {
        self.servers.connect().await.map_err(problem)
    }

    /// A link to the server, or to each master of a cluster.
    pub(crate) fn nodes(&self) -> Vec<Arc<Link>> {
        self.servers.links()
    }

    pub(crate) async fn warn_of_eviction(&self, deadline: Deadline) {
        // Each server of a cluster is checked when it is first used.
        if let Some(link) = self.servers.one() {
            warn_of_eviction(link, deadline).await;
        }
    }

    /// The failure of a command, with the name of the server in its text.
    fn name_failure(&self, error: CallError) -> StoreError {
        let error = StoreError::from(error);
        match self.servers.one() {
            Some(link) => error.of(link),
            // The route names the master.
            None => error,
        }
    }

    /// Like [`name_failure`](Self::name_failure), for an error that no route has named.
    fn failure_of(&self, link: &Link, error: CallError) -> StoreError {
        if self.servers.one().is_some() { self.name_failure(error) } else { error.of(link.server()).into() }
    }

    /// Runs a script by its text the first time on a connection, and by its digest from then on. A digest that the server does not know
    /// would cost a second round trip, for which a single try from far away has no time. `EVAL` keeps the script on the server, so
    /// `SCRIPT LOAD`, which needs a right of its own, is never used.
    fn run(
        &self,
        script: &Script,
        keys: (&str, usize),
        arguments: impl Fn(&Link, &mut Cmd) + Send + Sync,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Called, StoreError>> + Send {
        self.run_as(Outgoing::from, script, keys, arguments, deadline)
    }

    /// Like [`run`](Self::run), with a command that is sent as `outgoing` says.
    async fn run_as(
        &self,
        outgoing: impl Fn(Cmd) -> Outgoing<'static> + Send + Sync,
        script: &Script,
        (key, keys): (&str, usize),
        arguments: impl Fn(&Link, &mut Cmd) + Send + Sync,
        deadline: Deadline,
    ) -> Result<Called, StoreError> {
        let command = |link: &Link, is_known: bool| {
            let arguments = |command: &mut Cmd| arguments(link, command);
            outgoing(if is_known { script.by_digest(keys, &arguments) } else { script.by_text(keys, &arguments) })
        };
        self.run_by(script, key, command, deadline).await
    }

    /// Like [`run`](Self::run), with a command that is made once there is a connection and it is clear whether the server knows the script.
    async fn run_by<'a>(
        &self,
        script: &Script,
        key: &str,
        command: impl Fn(&Link, bool) -> Outgoing<'a> + Send + Sync,
        deadline: Deadline,
    ) -> Result<Called, StoreError> {
        let as_known = |link: &Link| command(link, link.has_mark(script.bit()));
        let repeated = match self.servers.call(key, as_known, deadline).await {
            Err(CallError::UnknownScript { repeated }) => repeated,
            outcome => return self.note_script(script, outcome),
        };
        mutant!(NoEvalFallback => return Err(CallError::UnknownScript { repeated }.into()));
        // Boxed, because it is rare: otherwise every script's future would have room for it.
        Box::pin(async {
            let deadline =
                if script.is_for_releases() { deadline.anew() } else { deadline.counted_from(Moment::now()) };
            let called = self.servers.call(key, |link: &Link| command(link, false), deadline).await;
            let called = called.map_err(|error| if repeated { error.after_sending() } else { error });
            let called = called.map(|called| Called { repeated: called.repeated || repeated, ..called });
            self.note_script(script, called)
        })
        .await
    }

    fn note_script(&self, script: &Script, called: Result<Called, CallError>) -> Result<Called, StoreError> {
        let called = called.map_err(|error| self.name_failure(error))?;
        if !called.link.has_mark(script.bit()) {
            called.link.set_mark(script.bit());
        }
        Ok(called)
    }
}

impl Store for RedisStore {
    fn kind(&self) -> &'static StoreKind {
        &StoreKind::SERVER
    }

    fn claim<'a>(
        &'a self,
        ask: &'a Ask,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send + 'a {
        self.claim_free(ask, deadline)
    }

    async fn ask(&self, asks: &[Ask], deadline: Deadline) -> Answers<Answer> {
        self.run_verb(asks, deadline).await
    }

    fn release_one<'a>(
        &'a self,
        release: &'a Release,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Ownership, StoreError>> + Send + 'a {
        if release.is_lone() {
            return Either::Left(self.free_one(release, deadline));
        }
        // Boxed: a lock's future has no room for it.
        Either::Right(Box::pin(
            async move { exactly_one(self.run_together(std::slice::from_ref(release), deadline).await) },
        ))
    }

    async fn release(&self, releases: &[Release], deadline: Deadline) -> Answers<Ownership> {
        self.run_verb(releases, deadline).await
    }

    fn withdraw_behind(&self, release: &Release) {
        self.servers.at(&release.key, |link| {
            let (behind, lost) = (Arc::clone(&self.news), release.clone());
            let on_lost = move || {
                if let Some(events) = behind.events() {
                    events.on_lost_withdrawal(lost);
                }
            };
            link.send_unread(&release::withdrawal_command(release), on_lost);
        });
    }

    async fn renew(&self, renewals: &[Renewal], deadline: Deadline) -> Answers<Renewed> {
        self.run_verb(renewals, deadline).await
    }

    async fn draw(
        &self,
        key: &Arc<str>,
        token: &Token,
        share: Option<Share>,
        count: u32,
        deadline: Deadline,
    ) -> Result<Option<u64>, StoreError> {
        let arguments = |_: &Link, command: &mut Cmd| draw_arguments(command, key, token, share, count);
        let (script, keys) = if share.is_some() { (&scripts::SHARED_DRAW, 3) } else { (&scripts::DRAW, 2) };
        let called = match self.run(script, (key, keys), arguments, deadline).await {
            Err(error) if error.is_denied() => {
                return Err(Box::pin(self.explain_refusal(error, key, None, share, deadline)).await);
            }
            outcome => outcome?,
        };
        check_vote_on_fences(&called)?;
        read_drawn(&called.value)
    }

    async fn inspect(&self, key: &str, deadline: Deadline) -> Result<Option<Seen>, StoreError> {
        self.look_at(key, deadline).await
    }

    async fn force(&self, key: &str, one: Option<(Share, Token)>, deadline: Deadline) -> Result<Forced, StoreError> {
        self.force_out(key, one, deadline).await
    }

    async fn give(&self, giving: &Giving, deadline: Deadline) -> Result<Ownership, StoreError> {
        self.put_ticket(giving, deadline).await
    }

    async fn adopt(&self, adoption: &Adoption, deadline: Deadline) -> Result<TicketAnswer, StoreError> {
        self.take_ticket(adoption, deadline).await
    }

    async fn heartbeat(&self, deadline: Deadline) {
        self.servers.heartbeat(deadline).await;
    }

    async fn connect_again(&self, deadline: Deadline) {
        self.servers.connect_again(deadline).await;
    }

    fn round_trip(&self) -> Duration {
        self.servers.round_trip()
    }

    fn connection(&self, key: &str) -> Connection {
        match self.servers.status(key) {
            Some(status) => Connection {
                is_cut_off: !status.is_connected,
                hears: status.is_connected,
                has_alarms: status.has_alarms,
            },
            None => Connection { is_cut_off: false, hears: false, has_alarms: false },
        }
    }

    fn probe_reader(&self) -> bool {
        self.servers.probe_reader()
    }

    fn reconnect_reader(&self, key: &str) {
        self.servers.at(key, |link| link.reconnect_reader());
    }

    fn is_connected(&self) -> bool {
        self.servers.is_connected()
    }

    fn begin_to_connect(&self) {
        self.servers.begin_to_connect();
    }

    fn outage(&self, key: &str) -> Option<(Duration, StoreError)> {
        self.servers.at(key, |link| {
            let (away, error) = link.outage()?;
            Some((away, self.failure_of(link, error)))
        })?
    }

    fn lag(&self) -> Duration {
        self.servers.lag()
    }

    async fn room(&self, key: &str) {
        if let Some(link) = self.servers.at(key, Arc::clone) {
            link.room().await;
        }
    }

    fn unanswered(&self, key: &str, since: Duration) -> StoreError {
        let named = self.servers.at(key, |link| self.failure_of(link, link.unanswered(since)));
        named.unwrap_or_else(|| CallError::Silent(since).into())
    }

    fn attach(&self, _process: &str, events: Weak<dyn Events>) {
        // A link subscribes to the channel of its process when it connects.
        self.news.attach(events);
    }

    fn server_of(&self, key: &str) -> usize {
        self.servers.server_of(key)
    }

    fn server_name(&self, key: &str) -> String {
        self.servers.server_name(key)
    }
}

/// The keys of one lock, in the order that the scripts use. All are in the hash slot of the lock's name.
fn lock_keys(command: &mut Cmd, key: &str, is_shared: bool) {
    command.arg(key);
    helper_key(command, key, "queue");
    helper_key(command, key, "fence");
    if is_shared {
        helper_key(command, key, "shared");
        helper_key(command, key, "head");
    }
}

/// The number of keys in [`lock_keys`].
fn keys_per_lock(is_shared: bool) -> usize {
    if is_shared { 5 } else { 3 }
}

fn helper_key(command: &mut Cmd, key: &str, helper: &str) {
    let mut argument = command.writer_for_next_arg();
    for part in ["{", key, "}:", helper] {
        // Writing to memory can't fail.
        let _ = argument.write_all(part.as_bytes());
    }
}

fn draw_arguments(command: &mut Cmd, key: &str, token: &Token, share: Option<Share>, count: u32) {
    command.arg(key);
    helper_key(command, key, "fence");
    if share.is_some() {
        helper_key(command, key, "shared");
    }
    command.arg(token.as_str()).arg(count);
    if let Some(share) = share {
        command.arg(share.capacity());
    }
}

/// Redis takes whole milliseconds, and at least one.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1)
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisStore").field(&self.servers).finish()
    }
}
