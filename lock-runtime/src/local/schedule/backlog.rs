//! [`Backlog`]: the releases that are not answered yet, and when each is sent next.
//!
//! Each server has its own queue. While a server answers, each release is sent at once, and a release that was refused for now is repeated
//! by itself. A server that does not answer gets one batch at a time, with growing pauses. All other releases wait at no cost, and follow
//! as soon as that batch is answered.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::store::{Ownership, Release};
use crate::timing::RELEASE_BACKOFF;
use crate::token::Token;

/// While this many releases wait, none is added whose lease ends soon by itself. Batches that were not answered come back on top: at most
/// [`BATCHES`] times [`BATCH`] for each server.
pub(super) const MOST: usize = 10_000;
/// How many batches of a kind may be in flight to one server. What an outage left must not delay the server's other clients.
pub(crate) const BATCHES: usize = 32;
/// How many items go into one command.
pub(crate) const BATCH: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Backlog {
    servers: BTreeMap<usize, ServerQueue>,
    /// The releases of locks that rest, with the number of their server, by the time when the rest is over. Nothing waits for them: without
    /// them each lock is free a moment later.
    resting: BTreeMap<(Instant, u64), (usize, Release)>,
    /// The tokens whose locks are to rest, until that is confirmed. Until then no withdrawal releases them.
    to_rest: HashSet<Token>,
    entries: u64,
    #[cfg(test)]
    sent: u64,
}

#[derive(Debug, Default)]
struct ServerQueue {
    /// Each release, by the time from which it may be sent.
    waiting: BTreeMap<(Instant, u64), QueuedRelease>,
    /// How many batches are in flight.
    in_flight: usize,
    unanswered: usize,
    /// How often in a row the server has not answered.
    failures: u32,
    /// Nothing is sent before this time, because the server has just failed to answer.
    closed_until: Option<Instant>,
}

#[derive(Debug)]
struct QueuedRelease {
    release: Release,
    /// How often the server has refused it.
    refusals: u32,
    /// Whether the server refused it for good. The missing right may still be granted before the lease is over.
    is_denied: bool,
}

/// The releases that go to one server in one command.
#[derive(Debug)]
pub(crate) struct Batch {
    server: usize,
    queued: Vec<QueuedRelease>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Done, with what the store said about the token's ownership.
    Done(Ownership),
    Refused,
    Denied,
    Unanswered,
}

impl Backlog {
    /// Adds a release for the server with this number, up to [`MOST`]. The release of a resting lock is sent when the rest is over.
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
        self.servers.entry(server).or_default().waiting.insert((at, self.entries), queued);
    }

    /// Whether the lock of `token` is to rest, and the store has not confirmed it yet.
    pub(super) fn is_to_rest(&self, token: &Token) -> bool {
        mutant!(RestWithdrawn => return false);
        self.to_rest.contains(token)
    }

    pub(super) fn len(&self) -> usize {
        self.servers.values().map(|queue| queue.waiting.len()).sum()
    }

    /// How many releases have no answer yet: they wait, or are in flight.
    pub(super) fn unreleased(&self) -> usize {
        self.servers.values().map(|queue| queue.waiting.len() + queue.unanswered).sum()
    }

    #[cfg(test)]
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    pub(super) fn is_empty(&self) -> bool {
        self.servers.values().all(|queue| queue.waiting.is_empty() && queue.in_flight == 0)
    }

    /// Whether a shutdown has nothing left to wait for. It does not wait for releases that the server refuses for good.
    pub(super) fn is_quiet(&self) -> bool {
        let is_quiet =
            |queue: &ServerQueue| queue.in_flight == 0 && queue.waiting.values().all(|queued| queued.is_denied);
        self.servers.values().all(is_quiet)
    }

    /// When the next release is to be sent. `None` if there is none, or an answer must arrive first.
    pub(super) fn next_try(&self) -> Option<Instant> {
        let rested = self.resting.first_key_value().map(|((at, _), _)| *at);
        self.servers.values().filter_map(ServerQueue::next_try).chain(rested).min()
    }

    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Batch> {
        while let Some(rested) = self.resting.first_entry().filter(|first| first.key().0 <= now) {
            let (server, release) = rested.remove();
            self.add(server, Release { kept_until: None, ..release });
        }
        let mut batches = Vec::new();
        let Self { servers, to_rest, .. } = self;
        for (server, queue) in servers {
            while queue.next_try().is_some_and(|at| at <= now) {
                let queued = queue.take_batch(now, to_rest);
                if queued.is_empty() {
                    break;
                }
                queue.in_flight += 1;
                queue.unanswered += queued.len();
                #[cfg(test)]
                {
                    self.sent += 1;
                }
                batches.push(Batch { server: *server, queued });
            }
        }
        batches
    }

    /// Handles the outcome of each release of a batch.
    pub(super) fn on_answers(&mut self, batch: Batch, fates: &[Fate], now: Instant) {
        let Batch { server, queued } = batch;
        let queue = self.servers.entry(server).or_default();
        queue.in_flight = queue.in_flight.saturating_sub(1);
        queue.unanswered = queue.unanswered.saturating_sub(queued.len());
        if fates.iter().any(|fate| *fate != Fate::Unanswered) {
            queue.failures = 0;
            queue.closed_until = None;
        } else if queue.closed_until.is_none_or(|until| until <= now) {
            // When several batches fail together, only the first counts.
            queue.failures += 1;
            queue.closed_until = Some(now + pause(queue.failures));
        }
        let is_open = queue.closed_until.is_none();
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
            // While the queue is closed, all releases wait for the pause of the queue.
            let at = if is_open { now + pause(queued.refusals + u32::from(queued.is_denied)) } else { now };
            self.insert(server, at, queued);
        }
    }

    /// Opens the servers of servers that did not answer, because a connection broke or was made again.
    pub(super) fn reopen(&mut self) {
        for queue in self.servers.values_mut() {
            queue.closed_until = None;
        }
    }
}

impl ServerQueue {
    fn next_try(&self) -> Option<Instant> {
        let most = if self.failures > 0 { 1 } else { BATCHES };
        let ((first, _), _) = self.waiting.first_key_value().filter(|_| self.in_flight < most)?;
        Some(self.closed_until.map_or(*first, |until| until.max(*first)))
    }

    fn take_batch(&mut self, now: Instant, to_rest: &mut HashSet<Token>) -> Vec<QueuedRelease> {
        if self.failures > 0 {
            // Drop releases whose leases have ended meanwhile.
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
            // A rest that is over becomes a plain release.
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

    /// For each release, whether the server refused it for good before.
    pub(crate) fn were_denied(&self) -> impl Iterator<Item = bool> {
        self.queued.iter().map(|queued| queued.is_denied)
    }
}

/// The pause after this many failures in a row.
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

    /// Sends what is due, with one fate for all. Returns how many releases and how many batches that were.
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

    /// The time until the next release is sent.
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
            assert_eq!(left(&backlog), Some(pause), "new releases do not shorten the pause");
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
        assert!(batch.were_denied().all(|denied| denied), "it is reported once");
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
    async fn the_backlog_is_bounded_except_for_leases_that_last() {
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
    async fn the_number_of_batches_on_their_way_is_bounded() {
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
