//! [`Quorum`]: locks on a majority of independent servers (Redlock).
//!
//! A token owns a lock when it owns the lock on more than half of all servers. Every verb is sent to all servers at once, and ends as soon
//! as the answers decide it. The servers have no queue: a waiter asks again after a random pause (docs/topologies.md).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::time::timeout_at;
use tokio_util::task::TaskTracker;

use super::{
    Adoption, Answer, Answers, Ask, Busy, Connection, Events, Feature, Forced, Giving, Grant, Ownership, Reach,
    Release, Renewal, Renewed, Seen, Store, StoreError, StoreKind, TicketAnswer, each, exactly_one,
};
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::mutex::Mutex;
use crate::share::Share;
use crate::token::Token;

mod health;
#[cfg(test)]
mod tests;
mod votes;

use super::voter::Voter;
use health::Member;
use votes::{Verdict, Votes};

/// Independent servers, in an order that all managers share.
pub(crate) struct Quorum<S> {
    members: Arc<[Arc<Member<S>>]>,
    /// How long, at least, to wait for a server whose answer is not needed.
    patience: Duration,
    /// When the servers were last probed because some of them failed.
    probed: Mutex<Option<Moment>>,
    /// Releases in progress, one per server. A shutdown waits for them.
    releases: TaskTracker,
    granted: Grants,
    events: OnceLock<Weak<dyn Events>>,
}

/// When a majority granted each lock, until its release is sent. The callers' quorum and the keeper's share it.
pub(crate) type Grants = Arc<Mutex<HashMap<Token, Moment>>>;

/// A server that has just answered answers again within this time, or its grant ends with its claim.
const ANSWERS_AGAIN_WITHIN: Duration = Duration::from_millis(500);

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

/// Why a lock of a quorum can't be shared.
const NO_SHARING: &str = "a quorum can't share a lock: each of its servers would count the holders by itself, and with \
                          three servers four holders could get three permits, each from another two servers. Use one \
                          server, Sentinel or a cluster for `read` and `permits`";
/// Why a lock of a quorum can't wait for an adopter.
const NO_TICKETS: &str = "a quorum's lock can't wait for an adopter: its servers would be told one after another, and a giver or \
                          an adopter that ends between two of them would leave each with a part of the lock. Use one server, \
                          Sentinel or a cluster for tickets";
/// Why a lock of a quorum can't be taken by force.
const NO_FORCE: &str = "a quorum's lock can't be taken away: its servers would be told one after another, and meanwhile two \
                        clients could each have a part of the lock. End the process that holds the lock, or wait for its \
                        lease";

/// A lease that is still renewed after this time is assumed to keep other processes waiting.
const OTHERS_WAIT_AFTER: Duration = Duration::from_secs(1);

/// Outstanding answers, each with its server's number. Dropping this drops the calls: see [`detach`].
type Pending<T> = FuturesUnordered<BoxFuture<'static, (usize, T)>>;

impl<S: Voter> Quorum<S> {
    pub(crate) fn new(nodes: Vec<S>, patience: Duration, granted: Grants) -> Self {
        let members = nodes.into_iter().enumerate().map(|(number, node)| Member::new(number, node)).collect();
        let (probed, releases) = (Mutex::default(), TaskTracker::new());
        Self { members, patience, probed, releases, granted, events: OnceLock::new() }
    }

    /// The stores of the single servers.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &S> {
        self.members.iter().map(|member| &member.node)
    }

    fn majority(&self) -> usize {
        self.votes::<(), ()>().majority()
    }

    fn votes<Y, N>(&self) -> Votes<Y, N> {
        Votes::new(self.members.len())
    }

    fn too_few<Y, N>(&self, votes: &Votes<Y, N>) -> StoreError {
        votes
            .too_few(|number| self.members.get(number).map_or_else(String::new, |member| member.node.name().to_owned()))
    }

    /// Whether the token owns the lock on a majority, once that is decided.
    fn is_owned<Y, N>(&self, votes: &Votes<Y, N>) -> Result<bool, StoreError> {
        match votes.owned() {
            Verdict::Yes => Ok(true),
            Verdict::No => Ok(false),
            Verdict::Open | Verdict::Unknown => Err(self.too_few(votes)),
        }
    }

    /// Adds the answers to the votes on `all` items, until it is decided for each whether the token owns its lock. Returns the outstanding
    /// answers.
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

    /// Counts the answers to asks (rule 5) until each ask is decided, or only slow servers could still change it. What a majority grants is
    /// granted. A refused ask that some servers may have granted has to be withdrawn.
    async fn resolve(&self, asks: &[Ask], mut pending: Pending<Answers<Answer>>) -> Answers<Answer> {
        let vote = |votes: &mut Votes<Grant, Busy>, number, answer| match answer {
            Answer::Granted(grant) => votes.yes.push((number, grant)),
            Answer::Busy(busy) => votes.no.push((number, busy)),
            // A quorum's lock is not taken from its holder.
            Answer::Late | Answer::Replaced => {
                votes.late += 1;
                let problem = BackendError::new("the ask came too late");
                votes.failed.push((number, StoreError { out_of_time: true, ..StoreError::later(problem) }));
            }
        };
        let mut all: Vec<_> = asks.iter().map(|_| self.votes()).collect();
        // Wait for one server as long as two round trips of the slowest server in the fastest majority.
        let usual = Deadline::after((self.round_trip() * 2).max(self.patience)).on_timer();
        let mut is_usual = true;
        let verdicts = loop {
            // How many servers may answer soon.
            let hopeful = |votes: &Votes<Grant, Busy>| {
                let may_answer = |member: &&Arc<Member<S>>| votes.lacks(member.number) && member.failure().is_none();
                if is_usual { self.members.iter().filter(may_answer).count() } else { 0 }
            };
            let verdicts: Vec<_> = all.iter().map(|votes| votes.granted(hopeful(votes))).collect();
            if !verdicts.contains(&Verdict::Open) || pending.is_empty() {
                break verdicts;
            }
            let answer = if is_usual { timeout_at(usual, pending.next()).await } else { Ok(pending.next().await) };
            match answer {
                Ok(Some((number, answers))) => record(&mut all, number, answers, &vote),
                Ok(None) => {}
                Err(_) => is_usual = false,
            }
        };
        // Others may have failed at the same instant. Their errors say whether anything was sent to them.
        while let Some(Some((number, answers))) = pending.next().now_or_never() {
            record(&mut all, number, answers, &vote);
        }
        let answer = |((votes, verdict), ask): ((&Votes<Grant, Busy>, &Verdict), &Ask)| {
            match (verdict, votes.no.iter().min_by_key(|(number, _)| *number)) {
                (Verdict::Yes, _) => {
                    // If some servers granted long before the others, most of the claim may be over: confirm the lease before use.
                    let until = votes.until(|grant| grant.until);
                    let is_long = until.remaining() >= ask.claim / 2;
                    let until = if is_long { until } else { Deadline::after(Duration::ZERO) };
                    Ok(Answer::Granted(Grant { until, contended: false, fence: None }))
                }
                (Verdict::No, Some((_, busy))) => {
                    let unsent = votes.failed.iter().filter(|(_, error)| error.reach == Reach::Unsent).count();
                    let stands = votes.no.len() + unsent < self.members.len();
                    // The clock of one server says nothing about the others.
                    Ok(Answer::Busy(Busy { anchor: None, stands, ..busy.clone() }))
                }
                // No server is at fault.
                _ if votes.late > 0 && votes.yes.len() + votes.no.len() + votes.late >= self.majority() => {
                    Ok(Answer::Late)
                }
                _ => Err(StoreError { reach: votes.reach(), ..self.too_few(votes) }),
            }
        };
        let answers: Vec<_> = all.iter().zip(&verdicts).zip(asks).map(answer).collect();
        self.probe_failed_servers();
        let granted = answers.iter().zip(asks).filter(|(answer, _)| matches!(answer, Ok(Answer::Granted(_))));
        let granted: Vec<_> = granted.map(|(_, ask)| ask.withdrawal()).collect();
        self.granted.lock().extend(granted.iter().map(|release| (release.token.clone(), Moment::now())));
        if granted.is_empty() || pending.is_empty() {
            detach(pending);
            return Ok(answers);
        }
        // A hold starts when a majority has granted it, and may be over before the last server has the ask. The keeper sends the release
        // over another connection, where it may overtake the ask. So release again at a server that answers late.
        let (members, grants) = (Arc::clone(&self.members), Arc::clone(&self.granted));
        tokio::spawn(async move {
            while let Some((number, _)) = pending.next().await {
                let is_released = |release: &&Release| !grants.lock().contains_key(&release.token);
                let released: Vec<_> = granted.iter().filter(is_released).cloned().collect();
                if let Some(member) = members.get(number).filter(|_| !released.is_empty()) {
                    let _ = member.node.release(&released, Deadline::after(ANSWERS_AGAIN_WITHIN)).await;
                }
            }
        });
        Ok(answers)
    }
}

/// The owner on a majority, for as long as a majority keeps the lease (rule 7). The waiters are unknown.
fn of_majority(seen: &[Seen], majority: usize) -> Option<Seen> {
    let owns = |owner: &Seen| seen.iter().filter(|other| other.owner == owner.owner).count() >= majority;
    let owner = seen.iter().find(|seen| owns(seen))?.owner.clone();
    let mut ends: Vec<Duration> =
        seen.iter().filter(|seen| seen.owner == owner).map(|seen| seen.frees_in.unwrap_or(Duration::MAX)).collect();
    ends.sort_unstable_by(|one, other| other.cmp(one));
    let frees_in = ends.get(majority - 1).copied().filter(|end| *end < Duration::MAX);
    Some(Seen { owner, frees_in, sharing: Vec::new(), waiting: Vec::new() })
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

/// Adds one server's answers to the votes of each item.
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

/// Lets outstanding calls finish on their own: a slow server executes what the others executed, and a silent server is detected.
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

    async fn release_one(&self, release: &Release, deadline: Deadline) -> Result<Ownership, StoreError> {
        exactly_one(self.release(std::slice::from_ref(release), deadline).await)
    }

    /// Each server has its own task, which goes on when the caller gives up, until the server has answered or failed. The keeper repeats
    /// what failed at a majority. With fewer failures the lease ends by itself there, and the other servers can grant the lock.
    async fn release(&self, releases: &[Release], deadline: Deadline) -> Answers<Ownership> {
        if mutant!(LaggingForgotten => false, else true) {
            let mut granted = self.granted.lock();
            for release in releases {
                granted.remove(&release.token);
            }
        }
        let alone = |release: &Release| Release { unused_fences: None, ..release.clone() };
        let releases: Arc<[Release]> = releases.iter().map(alone).collect();
        let pending = start_on(&*self.members, |member| {
            let releases = Arc::clone(&releases);
            // Boxed: otherwise the compiler generates tokio's task code again for each type of task.
            let released: BoxFuture<'static, Answers<Ownership>> = Box::pin(async move {
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
        let vote = |votes: &mut Votes<(), ()>, number, answer: Ownership| {
            votes.count(number, answer == Ownership::Owned);
        };
        drop(self.decide(&mut all, pending, vote).await);
        Ok(all.iter().map(|votes| Ok(self.is_owned(votes)?.into())).collect())
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
        // No server knows whether others wait. A process that had a lease for long has to share it.
        if mutant!(StreakUntold => false, else true)
            && let Some(events) = self.events.get().and_then(Weak::upgrade)
        {
            for Renewal { key, token, .. } in &*renewals {
                let granted = self.granted.lock().get(token).copied();
                if granted.is_some_and(|granted| granted.elapsed() >= OTHERS_WAIT_AFTER) {
                    events.on_contention(key);
                }
            }
        }
        let outcome = |votes: &Votes<Deadline, ()>| {
            Ok(if self.is_owned(votes)? { Renewed::Until(votes.until(|until| *until)) } else { Renewed::NotOwned })
        };
        Ok(all.iter().map(outcome).collect())
    }

    /// Rule Q3: the largest number that a majority drew counts, once a majority will draw no smaller one.
    async fn draw(
        &self,
        key: &Arc<str>,
        token: &Token,
        _: Option<Share>,
        count: u32,
        deadline: Deadline,
    ) -> Result<Option<u64>, StoreError> {
        let (key, token) = (Arc::clone(key), token.clone());
        let drawing = start_on(&*self.members, |member| {
            let (key, token) = (Arc::clone(&key), token.clone());
            async move { member.note_one(deadline, member.node.draw(&key, &token, None, count, deadline).await) }
        });
        let vote = |votes: &mut Votes<u64, ()>, number, answer: Option<u64>| match answer {
            Some(first) => votes.yes.push((number, first)),
            None => votes.no.push((number, ())),
        };
        let mut drawn = self.votes();
        detach(self.decide(std::slice::from_mut(&mut drawn), drawing, vote).await);
        if !self.is_owned(&drawn)? {
            return Ok(None);
        }
        let first = drawn.yes.iter().map(|(_, first)| *first).max().unwrap_or_default();
        mutant!(SmallerDrawsLeft => return Ok(Some(first)));
        // The servers whose own draw returned this number draw only greater ones from now on.
        let mut raised = self.votes();
        raised.yes = drawn.yes.iter().filter(|(_, own)| *own == first).map(|(number, _)| (*number, ())).collect();
        let others = self.members.iter().filter(|member| raised.lacks(member.number));
        let (last, deadline) = (first + u64::from(count) - 1, deadline.counted_from(Moment::now()));
        let raising = start_on(others, |member| {
            let (key, token) = (Arc::clone(&key), token.clone());
            async move { member.note_one(deadline, member.node.raise(&key, &token, last, deadline).await) }
        });
        detach(self.decide(std::slice::from_mut(&mut raised), raising, Votes::count).await);
        Ok(self.is_owned(&raised)?.then_some(first))
    }

    /// Waits for all servers until the deadline: a look is not urgent. A lock that no token owns on a majority is free, or an ask for it is
    /// in progress.
    async fn inspect(&self, key: &str, deadline: Deadline) -> Result<Option<Seen>, StoreError> {
        let mut looking = start_on(&*self.members, |member| {
            let key = key.to_owned();
            // Not noted: a look needs a right that locks do not need.
            async move { member.node.inspect(&key, deadline).await }
        });
        let mut votes: Votes<Seen, ()> = self.votes();
        while let Some((number, answer)) = looking.next().await {
            match answer {
                Ok(Some(seen)) => votes.yes.push((number, seen)),
                Ok(None) => votes.no.push((number, ())),
                Err(error) => votes.failed.push((number, error)),
            }
        }
        if votes.yes.len() + votes.no.len() < self.majority() {
            return Err(self.too_few(&votes));
        }
        Ok(of_majority(&votes.yes.into_iter().map(|(_, seen)| seen).collect::<Vec<_>>(), self.majority()))
    }

    async fn force(&self, _: &str, _: Option<(Share, Token)>, _: Deadline) -> Result<Forced, StoreError> {
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

    /// There is no majority since the last server that would have completed it went away.
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
        // With this many servers away there is no majority.
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

impl<S: Voter> fmt::Debug for Quorum<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Quorum").field(&self.server_name("")).finish()
    }
}
