//! [`Quorum`]: locks on a majority of independent servers (Redlock).
//!
//! A token owns a lock when it owns the lock on more than half of all servers. Every verb goes to all servers at once, and ends
//! as soon as the answers decide it. Only waiting begins at one server, so that votes don't split: docs/topologies.md.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::FuturesUnordered;

use super::{
    Adoption, Answer, Answers, Ask, Cause, Connection, Events, Forced, Giving, Ownership, Release, Released, Renewal,
    Renewed, Seen, Store, StoreError, StoreKind, TicketAnswer, each, exactly_one,
};
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::share::Share;
use crate::token::Token;

mod asking;
mod background;
mod fencing;
mod health;
mod lagging;
mod looking;
mod member;
mod relay;
mod stale_minority;
#[cfg(test)]
mod tests;
mod votes;

use super::voter::Voter;
use background::Background;
use health::HealthCheck;
use lagging::Lagging;
use member::Member;
use relay::Relay;
use votes::{Verdict, Votes};

/// Independent servers, in the order that all managers have in common.
pub(crate) struct Quorum<S> {
    members: Arc<[Arc<Member<S>>]>,
    /// How long, at least, to wait for the answer of one server before the next server is asked to queue.
    patience: Duration,
    health: HealthCheck,
    /// Releases and withdrawals.
    background: Background<S>,
    lagging: Lagging,
    relay: OnceLock<Arc<Relay>>,
}

const KIND: StoreKind = StoreKind {
    // Who waits asks one server, and then the others. A number that was drawn is raised on the others.
    round_trips_of_a_verb: 2,
    draws_with_grants: false,
    claims_overtake_waiters: true,
    withdraws_refused_tries: true,
    refuses_force: Some(NO_FORCE),
    refuses_sharing: Some(NO_SHARING),
    refuses_tickets: Some(NO_TICKETS),
    ..StoreKind::SERVER
};

/// Why nobody can share a lock of a quorum.
const NO_SHARING: &str = "a quorum can't share a lock: each of its servers would count the holders by itself, and with \
                          three servers four holders could get three permits, each from another two servers. Use one \
                          server, Sentinel or a cluster for `read` and `permits`";
/// Why a lock of a quorum can't wait for an adopter.
const NO_TICKETS: &str = "a quorum's lock can't wait for an adopter: its servers would be told one after another, and a giver or \
                          an adopter that ends between two of them would leave each with a part of the lock. Use one server, \
                          Sentinel or a cluster for tickets";
/// Why nobody can take a lock of a quorum away.
const NO_FORCE: &str = "a quorum's lock can't be taken away: its servers would be told one after another, and meanwhile two \
                        clients could each have a part of the lock. End the process that holds the lock, or wait for its \
                        lease";

/// Answers that are under way, each with its server's number. Dropping it drops the calls: see [`detach`].
type Pending<T> = FuturesUnordered<BoxFuture<'static, (usize, T)>>;

impl<S: Voter> Quorum<S> {
    pub(crate) fn new(nodes: Vec<S>, patience: Duration) -> Self {
        let members: Arc<[_]> = nodes.into_iter().enumerate().map(|(number, node)| Member::new(number, node)).collect();
        let background = Background::new(&members);
        Self {
            members,
            patience,
            health: HealthCheck::default(),
            background,
            lagging: Lagging::default(),
            relay: OnceLock::new(),
        }
    }

    fn votes<Y, N>(&self) -> Votes<Y, N> {
        Votes::new(self.members.len())
    }

    /// How long to wait for one server: two round trips of the slowest server in the fastest majority.
    fn patience(&self) -> Duration {
        (self.round_trip() * 2).max(self.patience)
    }

    fn name(&self, number: usize) -> String {
        self.members.get(number).map(|member| member.node.name().to_owned()).unwrap_or_default()
    }

    fn too_few<Y, N>(&self, votes: &Votes<Y, N>) -> StoreError {
        votes.too_few(|number| self.name(number))
    }

    /// Whether the token owns the lock on a majority, when that is decided.
    fn is_owned<Y, N>(&self, votes: &Votes<Y, N>) -> Result<bool, StoreError> {
        match votes.owned() {
            Verdict::Yes => Ok(true),
            Verdict::No => Ok(false),
            Verdict::Open | Verdict::Unknown => Err(self.too_few(votes)),
        }
    }

    /// Collects the answers for `count` items until each item is decided. Returns the votes in the order of the items, and the
    /// answers that are still under way.
    async fn decide<T, Y, N>(
        &self,
        count: usize,
        mut pending: Pending<Answers<T>>,
        vote: impl Fn(&mut Votes<Y, N>, usize, T),
        verdict: impl Fn(&Votes<Y, N>) -> Verdict,
    ) -> (Vec<Votes<Y, N>>, Pending<Answers<T>>) {
        let mut all: Vec<Votes<Y, N>> = (0..count).map(|_| self.votes()).collect();
        while all.iter().any(|votes| verdict(votes) == Verdict::Open)
            && let Some((number, answers)) = pending.next().await
        {
            record(&mut all, number, answers, &vote);
        }
        (all, pending)
    }
}

/// Starts a verb on servers.
fn start_on<'a, S: Voter, T, F>(
    members: impl IntoIterator<Item = &'a Arc<Member<S>>>,
    verb: impl Fn(Arc<Member<S>>) -> F,
) -> Pending<T>
where
    F: Future<Output = T> + Send + 'static,
{
    let start = |member: &Arc<Member<S>>| {
        let (number, answer) = (member.number, verb(Arc::clone(member)));
        let numbered: BoxFuture<'static, (usize, T)> = Box::pin(async move { (number, answer.await) });
        numbered
    };
    members.into_iter().map(start).collect()
}

/// Adds what a server answered to the votes of each item.
fn record<T, Y, N>(
    all: &mut [Votes<Y, N>],
    number: usize,
    answers: Answers<T>,
    vote: &impl Fn(&mut Votes<Y, N>, usize, T),
) {
    let answers = each(answers, all.len());
    for (votes, answer) in all.iter_mut().zip(answers) {
        match answer {
            Ok(answer) => vote(votes, number, answer),
            Err(error) => votes.failed.push((number, error)),
        }
    }
}

/// Lets calls that are under way end by themselves: a slow server executes what the others executed, and a silent server is
/// found out.
fn detach<T: Send + 'static>(pending: Pending<T>) {
    if !pending.is_empty() {
        tokio::spawn(pending.for_each(|_| std::future::ready(())));
    }
}

impl<S: Voter> Store for Quorum<S> {
    fn kind(&self) -> &'static StoreKind {
        mutant!(ClaimedAfterYield => return &StoreKind { claims_overtake_waiters: false, ..KIND });
        mutant!(UnansweredTryRepeated => return &StoreKind { withdraws_refused_tries: false, ..KIND });
        &KIND
    }

    async fn claim(&self, ask: &Ask, deadline: Deadline) -> Result<Answer, StoreError> {
        let (asks, ask) = ([ask.clone()], ask.clone());
        let pending = start_on(self.members.iter(), |member| {
            let ask = Ask { fences: 0, wait: false, ..ask.clone() };
            async move { member.note_one(deadline, member.node.claim(&ask, deadline).await) }
        });
        exactly_one(self.resolve_try(&asks, pending).await)
    }

    async fn ask(&self, asks: &[Ask], deadline: Deadline) -> Answers<Answer> {
        let asks: Vec<Ask> = asks.iter().map(|ask| Ask { fences: 0, ..ask.clone() }).collect();
        if asks.iter().all(|ask| ask.wait && ask.cause != Cause::Push) {
            return self.queue(&asks, deadline).await;
        }
        let pending = asking::send_asks(self.members.iter(), &asks, deadline);
        if asks.iter().all(|ask| ask.wait) {
            return self.resolve_wait(&asks, Vec::new(), pending).await;
        }
        self.resolve_try(&asks, pending).await
    }

    async fn release_one(&self, release: &Release, deadline: Deadline) -> Result<Released, StoreError> {
        let alone = Release { unused_fences: None, again: None, ..release.clone() };
        let pending = self.background.start(|member| {
            let release = alone.clone();
            async move { member.note_one(deadline, member.node.release_one(&release, deadline).await) }
        });
        let mut released = exactly_one(self.decide_releases(1, pending).await)?;
        let deadline = deadline.counted_from(Moment::now());
        // A task that comes late may find its ask taken over and its lease released. When no time is left it would send the ask, and not
        // wait for the answer. Without an answer the caller asks again.
        if let Some(ask) = Ask::along(release, deadline)
            .filter(|_| released.ownership == Ownership::Owned && !deadline.span().is_zero())
        {
            released.again = exactly_one(self.ask(std::slice::from_ref(&ask), deadline).await).ok();
        }
        Ok(released)
    }

    async fn release(&self, releases: &[Release], deadline: Deadline) -> Answers<Released> {
        let alone = |release: &Release| Release { unused_fences: None, again: None, ..release.clone() };
        let releases: Arc<[Release]> = releases.iter().map(alone).collect();
        let pending = self.background.start(|member| {
            let releases = Arc::clone(&releases);
            async move { member.note(deadline, member.node.release(&releases, deadline).await) }
        });
        self.decide_releases(releases.len(), pending).await
    }

    fn withdraw_behind(&self, release: &Release) {
        for member in &*self.members {
            member.node.withdraw_behind(release);
        }
    }

    fn on_release_by_keeper(&self, release: &Release) {
        if self.lagging.has(&release.token) {
            self.withdraw_behind(release);
        }
    }

    async fn renew(&self, renewals: &[Renewal], deadline: Deadline) -> Answers<Renewed> {
        let renewals: Arc<[Renewal]> = renewals.into();
        let pending = start_on(self.members.iter(), |member| {
            let renewals = Arc::clone(&renewals);
            async move { member.note(deadline, member.node.renew(&renewals, deadline).await) }
        });
        let vote = |votes: &mut Votes<Deadline, ()>, number, answer| match answer {
            Renewed::Until(until) => votes.yes.push((number, until)),
            Renewed::NotOwned | Renewed::Forced | Renewed::Partial => votes.no.push((number, ())),
        };
        let (all, rest) = self.decide(renewals.len(), pending, vote, Votes::owned).await;
        detach(rest);
        let outcome = |votes: &Votes<Deadline, ()>| match votes.owned() {
            Verdict::Yes => Ok(Renewed::Until(votes.until(|until| *until))),
            Verdict::No if votes.no.len() == self.members.len() => Ok(Renewed::NotOwned),
            Verdict::No => Ok(Renewed::Partial),
            Verdict::Open | Verdict::Unknown => Err(self.too_few(votes)),
        };
        Ok(all.iter().map(outcome).collect())
    }

    async fn draw(
        &self,
        key: &Arc<str>,
        token: &Token,
        _: Option<Share>,
        count: u32,
        deadline: Deadline,
    ) -> Result<Option<u64>, StoreError> {
        self.draw_from_majority(key, token, count, deadline).await
    }

    async fn inspect(&self, key: &str, deadline: Deadline) -> Result<Option<Seen>, StoreError> {
        self.look_at(key, deadline).await
    }

    async fn force(&self, _: &str, _: Deadline) -> Result<Forced, StoreError> {
        Err(StoreError::never(BackendError::new(NO_FORCE)))
    }

    async fn give(&self, _: &Giving, _: Deadline) -> Result<Ownership, StoreError> {
        Err(StoreError::never(BackendError::new(NO_TICKETS)))
    }

    async fn adopt(&self, _: &Adoption, _: Deadline) -> Result<TicketAnswer, StoreError> {
        Err(StoreError::never(BackendError::new(NO_TICKETS)))
    }

    async fn heartbeat(&self, deadline: Deadline) {
        self.probe_all(deadline).await;
        if self.down().is_some()
            && let Some(relay) = self.relay.get()
        {
            // A process that waits in the queue of one server does not notice that the other servers are gone.
            relay.on_interruption(&|_| true);
        }
    }

    async fn connect_again(&self, deadline: Deadline) {
        join_all(self.members.iter().map(|member| member.node.connect_again(deadline))).await;
    }

    /// The round trip of the slowest server in the fastest majority.
    fn round_trip(&self) -> Duration {
        let trips = || self.members.iter().map(|member| member.node.round_trip());
        let is_enough = |trip: &Duration| trips().filter(|other| other <= trip).count() >= self.majority();
        trips().filter(is_enough).min().unwrap_or_default()
    }

    fn connection(&self, key: &str) -> Connection {
        let connections = || self.members.iter().map(|member| member.node.connection(key));
        Connection {
            round_trip: self.round_trip(),
            is_cut_off: connections().all(|connection| connection.is_cut_off),
            hears: true,
            has_alarms: connections().any(|connection| connection.has_alarms),
        }
    }

    fn probe_reader(&self) -> bool {
        self.members.iter().filter(|member| member.node.probe_reader()).count() > 0
    }

    fn reconnect_reader(&self, key: &str) {
        self.members.iter().for_each(|member| member.node.reconnect_reader(key));
    }

    fn is_connected(&self) -> bool {
        self.members.iter().filter(|member| member.node.is_connected()).count() >= self.majority()
    }

    fn begin_to_connect(&self) {
        for member in &*self.members {
            member.node.begin_to_connect();
        }
    }

    fn outage(&self, key: &str) -> Option<(Duration, StoreError)> {
        self.outage_of_majority(key)
    }

    async fn wait_for_releases(&self) {
        self.background.wait().await;
    }

    fn attach(&self, process: &str, events: Weak<dyn Events>) {
        // The engine of the quorum attaches itself once.
        let relay = self.relay.get_or_init(|| Arc::new(Relay::new(events)));
        for member in &*self.members {
            let relay: Weak<Relay> = Arc::downgrade(relay);
            member.node.attach(process, relay);
        }
    }

    fn server_name(&self, _key: &str) -> String {
        let names: Vec<_> = self.members.iter().map(|member| member.node.name()).collect();
        names.join(", ")
    }
}

impl<S: Voter> Quorum<S> {
    /// Whether a majority owned each lock until its release.
    async fn decide_releases(&self, count: usize, pending: Pending<Answers<Released>>) -> Answers<Released> {
        let vote = |votes: &mut Votes<(), ()>, number, answer: Released| {
            let side = if answer.ownership == Ownership::Owned { &mut votes.yes } else { &mut votes.no };
            side.push((number, ()));
        };
        let (all, _) = self.decide(count, pending, vote, Votes::owned).await;
        Ok(all.iter().map(|votes| Ok(Released { ownership: self.is_owned(votes)?.into(), again: None })).collect())
    }
}

impl<S: Voter> fmt::Debug for Quorum<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.members.iter().map(|member| member.node.name()).collect();
        f.debug_tuple("Quorum").field(&names).finish()
    }
}
