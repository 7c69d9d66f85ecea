//! [`Backlog`]: the releases that are not answered yet, and the time at which each is sent next.
//!
//! Each server has a lane of its own. While a server answers, each release is sent at once, and a release that was
//! refused for now is repeated alone. A server that does not answer gets one batch at a time, after growing pauses. All
//! other releases wait at no cost, and follow as soon as that batch is answered.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::store::{Ownership, Release};
use crate::timing::RELEASE_BACKOFF;
use crate::token::Token;

/// While so many releases wait, none is added whose lease ends soon by itself. What was sent without an answer comes back on top:
/// [`BATCHES`] times [`BATCH`] for each server at most.
pub(super) const MOST: usize = 10_000;
/// How many batches may be on their way to one server. What an outage left must not delay the server's other clients.
const BATCHES: usize = 32;
/// How many releases go into one command.
const BATCH: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Backlog {
    lanes: BTreeMap<usize, Lane>,
    /// The releases of locks that rest, for the server with this number, under the time when the rest is over. Nobody waits for them:
    /// without them each lock is free a moment later.
    resting: BTreeMap<(Instant, u64), (usize, Release)>,
    /// The tokens whose locks are to rest, until that is answered. They are not released meanwhile, whoever withdraws them.
    to_rest: HashSet<Token>,
    entries: u64,
    /// How many batches were sent so far.
    #[cfg(test)]
    sent: u64,
}

/// The releases for one server.
#[derive(Debug, Default)]
struct Lane {
    /// Each release under the time from which it may be sent.
    waiting: BTreeMap<(Instant, u64), QueuedRelease>,
    /// How many batches are on their way.
    in_flight: usize,
    /// How many releases they carry.
    unanswered: usize,
    /// How often in a row the server has not answered.
    failures: u32,
    /// Nothing is sent before this time, because the server did not answer a moment ago.
    closed_until: Option<Instant>,
}

#[derive(Debug)]
struct QueuedRelease {
    release: Release,
    /// How often the server has refused it.
    refusals: u32,
    /// Whether the server has refused it for good. The missing right may be granted before the lease is over.
    is_denied: bool,
}

/// The releases that go to one server in one command.
#[derive(Debug)]
pub(crate) struct Batch {
    server: usize,
    queued: Vec<QueuedRelease>,
}

/// The outcome of a release that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The release is done, and the lock was this to its token.
    Done(Ownership),
    /// The server refuses the release for now.
    Refused,
    /// The server refuses the release for good.
    Denied,
    /// The server did not answer.
    Unanswered,
}

impl Backlog {
    /// Adds a release for the server with this number, within [`MOST`]. That of a lock that rests is sent when the rest is over.
    pub(super) fn add(&mut self, server: usize, release: Release) {
        if let Some(kept_until) = release.kept_until.as_ref().filter(|_| release.token.rests()) {
            self.entries += 1;
            self.resting.insert((kept_until.on_timer(), self.entries), (server, release));
            return;
        }
        if self.is_to_rest(&release.token) || (self.len() >= MOST && release.ends_soon()) {
            return;
        }
        if release.kept_until.is_some() {
            self.to_rest.insert(release.token.clone());
        }
        self.insert(server, Instant::now(), QueuedRelease { release, refusals: 0, is_denied: false });
    }

    fn insert(&mut self, server: usize, at: Instant, queued: QueuedRelease) {
        self.entries += 1;
        self.lanes.entry(server).or_default().waiting.insert((at, self.entries), queued);
    }

    /// Whether the lock of `token` is to rest, and the store has not said that it does.
    pub(super) fn is_to_rest(&self, token: &Token) -> bool {
        mutant!(RestWithdrawn => return false);
        self.to_rest.contains(token)
    }

    /// How many releases wait to be sent.
    pub(super) fn len(&self) -> usize {
        self.lanes.values().map(|lane| lane.waiting.len()).sum()
    }

    /// How many releases have no answer yet: they wait, or are on their way.
    pub(super) fn unreleased(&self) -> usize {
        self.lanes.values().map(|lane| lane.waiting.len() + lane.unanswered).sum()
    }

    #[cfg(test)]
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether nothing waits, and nothing is on its way.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.values().all(|lane| lane.waiting.is_empty() && lane.in_flight == 0)
    }

    /// Whether nothing is left that a shutdown should wait for. It does not wait for releases that the server refuses
    /// for good.
    pub(super) fn is_quiet(&self) -> bool {
        let is_quiet = |lane: &Lane| lane.in_flight == 0 && lane.waiting.values().all(|queued| queued.is_denied);
        self.lanes.values().all(is_quiet)
    }

    /// When the next release is to be sent. `None` when there is none, or an answer must come first.
    pub(super) fn next_try(&self) -> Option<Instant> {
        let rested = self.resting.first_key_value().map(|((at, _), _)| *at);
        self.lanes.values().filter_map(Lane::next_try).chain(rested).min()
    }

    /// Takes the batches that are to be sent now.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Batch> {
        while let Some(rested) = self.resting.first_entry().filter(|first| first.key().0 <= now) {
            let (server, release) = rested.remove();
            self.add(server, Release { kept_until: None, ..release });
        }
        let mut batches = Vec::new();
        let Self { lanes, to_rest, .. } = self;
        for (server, lane) in lanes {
            while lane.next_try().is_some_and(|at| at <= now) {
                let queued = lane.take_batch(now, to_rest);
                if queued.is_empty() {
                    break;
                }
                lane.in_flight += 1;
                lane.unanswered += queued.len();
                #[cfg(test)]
                {
                    self.sent += 1;
                }
                batches.push(Batch { server: *server, queued });
            }
        }
        batches
    }

    /// Takes in the outcome of each release of a batch.
    pub(super) fn on_answers(&mut self, batch: Batch, fates: &[Fate], now: Instant) {
        let Batch { server, queued } = batch;
        let lane = self.lanes.entry(server).or_default();
        lane.in_flight = lane.in_flight.saturating_sub(1);
        lane.unanswered = lane.unanswered.saturating_sub(queued.len());
        if fates.iter().any(|fate| *fate != Fate::Unanswered) {
            lane.failures = 0;
            lane.closed_until = None;
        } else if lane.closed_until.is_none_or(|until| until <= now) {
            // When several batches fail together, only the first counts.
            lane.failures += 1;
            lane.closed_until = Some(now + pause(lane.failures));
        }
        let is_lane_open = lane.closed_until.is_none();
        for (mut queued, fate) in queued.into_iter().zip(fates) {
            let done = if let Fate::Done(ownership) = fate { Some(*ownership) } else { None };
            if done.is_some() || queued.release.repeat_until.has_passed() {
                self.to_rest.remove(&queued.release.token);
            }
            if let Some(ownership) = done {
                if let Some(left) = queued.release.once_done(ownership) {
                    self.add(server, left);
                }
                continue;
            }
            if queued.release.repeat_until.has_passed() {
                continue;
            }
            queued.is_denied |= *fate == Fate::Denied;
            queued.refusals += u32::from(*fate != Fate::Unanswered);
            // While the lane is closed, all releases wait for the pause of the lane.
            let at = if is_lane_open { now + pause(queued.refusals + u32::from(queued.is_denied)) } else { now };
            self.insert(server, at, queued);
        }
    }

    /// Opens the lanes of servers that did not answer, because a connection broke or was made again.
    pub(super) fn reopen(&mut self) {
        for lane in self.lanes.values_mut() {
            lane.closed_until = None;
        }
    }
}

impl Lane {
    fn next_try(&self) -> Option<Instant> {
        let most = if self.failures > 0 { 1 } else { BATCHES };
        let ((first, _), _) = self.waiting.first_key_value().filter(|_| self.in_flight < most)?;
        Some(self.closed_until.map_or(*first, |until| until.max(*first)))
    }

    fn take_batch(&mut self, now: Instant, to_rest: &mut HashSet<Token>) -> Vec<QueuedRelease> {
        if self.failures > 0 {
            // A release whose lease has ended meanwhile need not be sent any more.
            self.waiting.retain(|_, queued| {
                let has_ended = queued.release.repeat_until.has_passed();
                if has_ended {
                    to_rest.remove(&queued.release.token);
                }
                !has_ended
            });
        }
        let mut batch = Vec::new();
        while batch.len() < BATCH
            && let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now)
        {
            let mut queued = first.remove();
            // A rest that is over is a release.
            if queued.release.kept_until.take_if(|until| until.has_passed()).is_some() {
                to_rest.remove(&queued.release.token);
            }
            batch.push(queued);
        }
        batch
    }
}

impl Batch {
    pub(crate) fn releases(&self) -> Vec<Release> {
        self.queued.iter().map(|queued| queued.release.clone()).collect()
    }

    /// Whether the server has refused each release for good before, in the order of the releases.
    pub(crate) fn were_denied(&self) -> impl Iterator<Item = bool> {
        self.queued.iter().map(|queued| queued.is_denied)
    }
}

/// The pause after this number of failures in a row.
fn pause(failures: u32) -> Duration {
    mutant!(RepeatedWithoutPause => return crate::timing::TICK);
    RELEASE_BACKOFF.pause(failures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Deadline;
    use crate::timing::CLAIM;

    fn withdrawal() -> Release {
        Release::withdrawal(&"p:k".into(), &Token::foreign("t"), CLAIM)
    }

    fn add(backlog: &mut Backlog, count: usize) {
        (0..count).for_each(|_| backlog.add(0, withdrawal()));
    }

    /// Sends what is due, all with the same fate; how many that were, in how many batches.
    fn send(backlog: &mut Backlog, fate: Fate) -> (usize, usize) {
        let now = Instant::now();
        let batches = backlog.take_due(now);
        let counts = (batches.iter().map(|batch| batch.queued.len()).sum(), batches.len());
        for batch in batches {
            let fates = vec![fate; batch.queued.len()];
            backlog.on_answers(batch, &fates, now);
        }
        counts
    }

    /// The time until the next one is to be sent.
    fn left(backlog: &Backlog) -> Option<Duration> {
        backlog.next_try().map(|at| at.saturating_duration_since(Instant::now()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_is_tried_with_one_batch_after_growing_pauses() {
        let mut backlog = Backlog::default();
        add(&mut backlog, 1000);
        assert_eq!(send(&mut backlog, Fate::Unanswered), (1000, 8));
        for millis in [100, 200, 400, 800, 1000, 1000] {
            let pause = Duration::from_millis(millis);
            add(&mut backlog, 1);
            assert_eq!(left(&backlog), Some(pause), "what comes meanwhile does not shorten the pause");
            assert_eq!(send(&mut backlog, Fate::Unanswered), (0, 0));
            tokio::time::advance(pause).await;
            assert_eq!(send(&mut backlog, Fate::Unanswered), (BATCH, 1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn when_a_server_answers_again_all_the_rest_follows_at_once() {
        let mut backlog = Backlog::default();
        add(&mut backlog, 1000);
        send(&mut backlog, Fate::Unanswered);
        backlog.reopen();
        assert_eq!(send(&mut backlog, Fate::Done(Ownership::Owned)), (BATCH, 1));
        assert_eq!(send(&mut backlog, Fate::Done(Ownership::Owned)), (1000 - BATCH, 7));
        assert!(backlog.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_server_refuses_for_now_is_repeated_by_itself_and_holds_up_nothing_else() {
        let mut backlog = Backlog::default();
        add(&mut backlog, 1);
        for millis in [100, 200, 400, 800, 1000] {
            assert_eq!(send(&mut backlog, Fate::Refused), (1, 1));
            assert_eq!(left(&backlog), Some(Duration::from_millis(millis)));
            add(&mut backlog, 2);
            assert_eq!(send(&mut backlog, Fate::Done(Ownership::Owned)), (2, 1));
            tokio::time::advance(Duration::from_millis(millis)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_for_good_is_repeated_less_and_less_often_and_no_shutdown_waits_for_it() {
        let mut backlog = Backlog::default();
        add(&mut backlog, 1);
        for millis in [200, 400, 800, 1000, 1000] {
            assert_eq!(send(&mut backlog, Fate::Denied), (1, 1));
            assert!(backlog.is_quiet() && !backlog.is_empty());
            assert_eq!(left(&backlog), Some(Duration::from_millis(millis)));
            tokio::time::advance(Duration::from_millis(millis)).await;
        }
        let batch = backlog.take_due(Instant::now()).remove(0);
        assert!(batch.were_denied().all(|denied| denied), "it is told once");
        backlog.on_answers(batch, &[Fate::Done(Ownership::Owned)], Instant::now());
        assert!(backlog.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_ended_by_itself_is_not_kept_and_not_sent() {
        let mut backlog = Backlog::default();
        add(&mut backlog, 1000);
        send(&mut backlog, Fate::Unanswered);
        let lasting = Release { repeat_until: Deadline::after(CLAIM * 100), ..withdrawal() };
        backlog.add(0, lasting);
        tokio::time::advance(CLAIM * 3).await;
        assert_eq!(send(&mut backlog, Fate::Unanswered), (1, 1));
        assert_eq!(backlog.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_kept_and_no_more_but_for_leases_that_last() {
        let mut backlog = Backlog::default();
        add(&mut backlog, MOST + 10);
        assert_eq!(backlog.len(), MOST);
        backlog.add(1, Release { repeat_until: Deadline::after(CLAIM * 100), ..withdrawal() });
        assert_eq!(backlog.len(), MOST + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_delays_what_is_for_no_other() {
        let mut backlog = Backlog::default();
        add(&mut backlog, 1);
        send(&mut backlog, Fate::Unanswered);
        backlog.add(1, withdrawal());
        assert_eq!(left(&backlog), Some(Duration::ZERO));
        assert_eq!(send(&mut backlog, Fate::Done(Ownership::Owned)), (1, 1));
        assert_eq!(left(&backlog), Some(RELEASE_BACKOFF.first));
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_batches_are_on_their_way_at_once() {
        let mut backlog = Backlog::default();
        add(&mut backlog, BATCH * (BATCHES + 3));
        let batches = backlog.take_due(Instant::now());
        assert_eq!((batches.len(), backlog.next_try()), (BATCHES, None));
        assert_eq!((backlog.len(), backlog.unreleased()), (BATCH * 3, BATCH * (BATCHES + 3)));
        for batch in batches {
            let fates = vec![Fate::Done(Ownership::Owned); batch.queued.len()];
            backlog.on_answers(batch, &fates, Instant::now());
        }
        assert_eq!(send(&mut backlog, Fate::Done(Ownership::Owned)), (BATCH * 3, 3));
        assert_eq!(backlog.unreleased(), 0);
    }
}
