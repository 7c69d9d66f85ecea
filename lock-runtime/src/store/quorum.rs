//! [`Quorum`]: locks on a majority of independent servers (Redlock).
//!
//! A token owns a lock when it owns the lock on more than half of all servers. Every verb goes to all servers at once, and ends
//! as soon as the answers decide it. The servers have no queue: whoever waits asks again after a random pause (docs/topologies.md).

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::FuturesUnordered;
use tokio_util::task::TaskTracker;

use super::{
    Adoption, Answer, Answers, Ask, Connection, Events, Feature, Forced, Giving, Ownership, Release, Released, Renewal,
    Renewed, Seen, Store, StoreError, StoreKind, TicketAnswer, each, exactly_one,
};
use crate::BackendError;
use crate::clock::Deadline;
use crate::share::Share;
use crate::token::Token;

mod asking;
mod fencing;
mod grants;
mod health;
mod looking;
mod member;
#[cfg(test)]
mod tests;
mod votes;

use super::voter::Voter;
pub(crate) use grants::Grants;
use health::HealthCheck;
use member::Member;
use votes::{Verdict, Votes};

/// Independent servers, in the order that all managers have in common.
pub(crate) struct Quorum<S> {
    members: Arc<[Arc<Member<S>>]>,
    /// How long, at least, to wait for a server whose answer is not needed.
    patience: Duration,
    health: HealthCheck,
    /// Releases that go on, each at a server. A shutdown waits for them.
    releases: TaskTracker,
    grants: Grants,
    events: OnceLock<Weak<dyn Events>>,
}

const KIND: StoreKind = StoreKind {
    queues: false,
    refuses: |feature| {
        Some(match feature {
            Feature::Sharing => NO_SHARING,
            Feature::Tickets => NO_TICKETS,
            Feature::Force => NO_FORCE,
        })
    },
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

/// A lease that is renewed after this time is shared with the other processes: they may wait for it.
const OTHERS_WAIT_AFTER: Duration = Duration::from_secs(1);

/// Answers that are under way, each with its server's number. Dropping it drops the calls: see [`detach`].
type Pending<T> = FuturesUnordered<BoxFuture<'static, (usize, T)>>;

impl<S: Voter> Quorum<S> {
    pub(crate) fn new(nodes: Vec<S>, patience: Duration, grants: Grants) -> Self {
        let members = nodes.into_iter().enumerate().map(|(number, node)| Member::new(number, node)).collect();
        let (health, releases) = (HealthCheck::default(), TaskTracker::new());
        Self { members, patience, health, releases, grants, events: OnceLock::new() }
    }

    fn votes<Y, N>(&self) -> Votes<Y, N> {
        Votes::new(self.members.len())
    }

    /// How long to wait for one server: two round trips of the slowest server in the fastest majority.
    fn patience(&self) -> Duration {
        (self.round_trip() * 2).max(self.patience)
    }

    fn too_few<Y, N>(&self, votes: &Votes<Y, N>) -> StoreError {
        votes
            .too_few(|number| self.members.get(number).map_or_else(String::new, |member| member.node.name().to_owned()))
    }

    /// Whether the token owns the lock on a majority, when that is decided.
    fn is_owned<Y, N>(&self, votes: &Votes<Y, N>) -> Result<bool, StoreError> {
        match votes.owned() {
            Verdict::Yes => Ok(true),
            Verdict::No => Ok(false),
            Verdict::Open | Verdict::Unknown => Err(self.too_few(votes)),
        }
    }

    /// Adds the answers to the votes on `all` items until it is decided for each whether the token owns its lock. Returns the answers that
    /// are still under way.
    async fn decide<T, Y, N>(
        &self,
        all: &mut [Votes<Y, N>],
        mut pending: Pending<Answers<T>>,
        vote: impl Fn(&mut Votes<Y, N>, usize, T),
    ) -> Pending<Answers<T>> {
        while all.iter().any(|votes| votes.owned() == Verdict::Open)
            && let Some((number, answers)) = pending.next().await
        {
            record(all, number, answers, &vote);
        }
        pending
    }

    /// Releases locks at all servers, each in a task of its own, which goes on when the caller gives up: until the server has answered or
    /// failed. The keeper repeats what failed at a majority. Elsewhere the lease ends by itself, and the others can grant the lock.
    async fn release_everywhere(&self, releases: &[Release], deadline: Deadline) -> Answers<Released> {
        for release in releases {
            self.grants.on_release(&release.token);
        }
        let alone = |release: &Release| Release { unused_fences: None, ..release.clone() };
        let releases: Arc<[Release]> = releases.iter().map(alone).collect();
        let pending = start_on(&*self.members, |member| {
            let releases = Arc::clone(&releases);
            // Boxed: the compiler makes all of tokio's code about a task again for each kind of task.
            let released: BoxFuture<'static, Answers<Released>> = Box::pin(async move {
                match &*releases {
                    [one] => member.note_one(deadline, member.node.release_one(one, deadline).await),
                    several => member.note(deadline, member.node.release(several, deadline).await),
                }
            });
            let task = self.releases.spawn(released);
            // A task fails only with its runtime.
            async move { task.await.unwrap_or_else(|_| Err(StoreError::no_answer())) }
        });
        let mut all: Vec<Votes<(), ()>> = releases.iter().map(|_| self.votes()).collect();
        let vote = |votes: &mut Votes<(), ()>, number, answer: Released| {
            let side = if answer.ownership == Ownership::Owned { &mut votes.yes } else { &mut votes.no };
            side.push((number, ()));
        };
        drop(self.decide(&mut all, pending, vote).await);
        Ok(all.iter().map(|votes| Ok(Released { ownership: self.is_owned(votes)?.into(), again: None })).collect())
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
        &KIND
    }

    async fn claim(&self, ask: &Ask, deadline: Deadline) -> Result<Answer, StoreError> {
        let (asks, ask) = ([ask.clone()], ask.clone());
        let pending = start_on(&*self.members, |member| {
            let ask = Ask { fences: 0, wait: false, ..ask.clone() };
            async move { member.note_one(deadline, member.node.claim(&ask, deadline).await) }
        });
        exactly_one(self.resolve(&asks, pending).await)
    }

    async fn ask(&self, asks: &[Ask], deadline: Deadline) -> Answers<Answer> {
        let asks: Arc<[Ask]> = asks.iter().map(|ask| Ask { fences: 0, wait: false, ..ask.clone() }).collect();
        let pending = start_on(&*self.members, |member| {
            let asks = Arc::clone(&asks);
            async move { member.note(deadline, member.node.ask(&asks, deadline).await) }
        });
        self.resolve(&asks, pending).await
    }

    async fn release_one(&self, release: &Release, deadline: Deadline) -> Result<Released, StoreError> {
        exactly_one(self.release_everywhere(std::slice::from_ref(release), deadline).await)
    }

    async fn release(&self, releases: &[Release], deadline: Deadline) -> Answers<Released> {
        self.release_everywhere(releases, deadline).await
    }

    fn withdraw_behind(&self, release: &Release) {
        for member in &*self.members {
            member.node.withdraw_behind(release);
        }
    }

    async fn renew(&self, renewals: &[Renewal], deadline: Deadline) -> Answers<Renewed> {
        let renewals: Arc<[Renewal]> = renewals.into();
        let pending = start_on(&*self.members, |member| {
            let renewals = Arc::clone(&renewals);
            async move { member.note(deadline, member.node.renew(&renewals, deadline).await) }
        });
        let vote = |votes: &mut Votes<Deadline, ()>, number, answer| match answer {
            Renewed::Until(until) => votes.yes.push((number, until)),
            Renewed::NotOwned | Renewed::Forced => votes.no.push((number, ())),
        };
        let mut all: Vec<_> = renewals.iter().map(|_| self.votes()).collect();
        detach(self.decide(&mut all, pending, vote).await);
        self.tell_of_others(&renewals);
        let outcome = |votes: &Votes<Deadline, ()>| {
            Ok(if self.is_owned(votes)? { Renewed::Until(votes.until(|until| *until)) } else { Renewed::NotOwned })
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
        health::probe(&self.members, deadline).await;
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
            // A draw takes two: a number that was drawn is raised on the other servers.
            round_trip: self.round_trip() * 2,
            is_cut_off: connections().all(|connection| connection.is_cut_off),
            hears: true,
            has_alarms: connections().any(|connection| connection.has_alarms),
        }
    }

    fn is_connected(&self) -> bool {
        self.members.iter().filter(|member| member.node.is_connected()).count() >= self.majority()
    }

    fn begin_to_connect(&self) {
        self.members.iter().for_each(|member| member.node.begin_to_connect());
    }

    /// Since when there is no majority: since the last server that would have made one is away.
    fn outage(&self, key: &str) -> Option<(Duration, StoreError)> {
        let mut votes: Votes<(), ()> = self.votes();
        let mut away = Vec::new();
        for member in &*self.members {
            if let Some((since, error)) = member.node.outage(key) {
                away.push(since);
                votes.failed.push((member.number, error));
            }
        }
        away.sort_unstable_by(|one, other| other.cmp(one));
        // So many servers away leave no majority.
        let too_many = self.members.len() - self.majority() + 1;
        away.get(too_many - 1).map(|since| (*since, self.too_few(&votes)))
    }

    async fn wait_for_releases(&self) {
        self.releases.close();
        self.releases.wait().await;
    }

    fn attach(&self, process: &str, events: Weak<dyn Events>) {
        for member in &*self.members {
            member.node.attach(process, Weak::clone(&events));
        }
        // A manager attaches itself once.
        let _ = self.events.set(events);
    }

    fn server_name(&self, _key: &str) -> String {
        self.members.iter().map(|member| member.node.name()).collect::<Vec<_>>().join(", ")
    }
}

impl<S: Voter> Quorum<S> {
    /// Tells the manager that others wait for what it has had for long. No server knows whether they do.
    fn tell_of_others(&self, renewals: &[Renewal]) {
        mutant!(StreakUntold => return);
        let is_long = |renewal: &&Renewal| self.grants.has_been_owned_for(&renewal.token, OTHERS_WAIT_AFTER);
        if let Some(events) = self.events.get().and_then(Weak::upgrade) {
            renewals.iter().filter(is_long).for_each(|renewal| events.on_contention(&renewal.key));
        }
    }
}

impl<S: Voter> fmt::Debug for Quorum<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Quorum").field(&self.server_name("")).finish()
    }
}
