//! [`KeySet`]: several keys that are locked together, all or none.
//!
//! First all keys are tried at once: free keys on one server cost one round trip. When a key is busy, the grants of later keys (in the
//! order of the names) are released, and the task waits for the busy key. Then it continues with the later keys. So a task that waits for a
//! key holds only earlier keys, and no tasks wait for each other in a circle.
//!
//! While the keys are gathered, each lease is renewed, and each hold ends a claim after the task was last polled ([`KeepAlive`]). The
//! time of the holds begins when all keys are held.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::{Entry, wait_inside};
use crate::clock::{Deadline, Moment};
use crate::guard::Locked;
use crate::held::Held;
use crate::keep_alive::KeepAlive;
use crate::local::{Hold, HoldHandle, keep_alive};
use crate::lock::{ResolvedRequest, Whole, answer_time};
use crate::observe::WaitSpan;
use crate::settings::Settings;
use crate::store::StoreError;
use crate::timing::OVERTIME;
use crate::{InvalidKey, LockError, LockGuard};

/// A hold of an outer body, and the nested request that borrows it.
type Borrowed<'a> = (HoldHandle, &'a ResolvedRequest);

/// A request has at most this many keys. A busy machine can't acquire tens of thousands in time: the answers are so late that the commands
/// are repeated.
const MOST_KEYS: usize = 1000;

/// The requests for several keys.
#[derive(Debug)]
pub(crate) struct KeySet {
    /// One for each key, in the order of the names.
    pub(super) requests: Vec<ResolvedRequest>,
    /// For each key as it was given: its place among the requests.
    given: Box<[usize]>,
}

impl KeySet {
    /// The error of a list without a key.
    pub(crate) fn no_key(prefix: &str) -> LockError {
        let reason = InvalidKey::new("the list of keys is empty, so there is nothing to lock");
        LockError::InvalidKey { key: prefix.to_owned(), reason }
    }

    /// Each request is `like` with another name.
    pub(crate) fn new(names: &[Arc<str>], like: &ResolvedRequest, settings: &Settings) -> Result<Self, LockError> {
        let given = names.iter().map(|name| settings.full_name(Arc::clone(name))).collect::<Result<Vec<_>, _>>()?;
        // Each key once, in the order in which all processes take keys.
        let mut keys = given.clone();
        keys.sort();
        keys.dedup();
        mutant!(KeysInAnyOrder => keys = once_each(&given));
        if let Some(first) = keys.first().filter(|_| keys.len() > MOST_KEYS) {
            let reason = format!("a request locks at most {MOST_KEYS} keys together, and these are {}", keys.len());
            return Err(LockError::InvalidKey { key: first.to_string(), reason: InvalidKey::new(reason) });
        }
        let given = given.iter().filter_map(|key| keys.binary_search(key).ok()).collect();
        let requests = keys.into_iter().map(|key| ResolvedRequest { key, ..like.clone() }).collect();
        Ok(Self { requests, given })
    }

    /// The first key by name. `None` without a key.
    pub(crate) fn first_key(&self) -> Option<&Arc<str>> {
        self.requests.first().map(|request| &request.key)
    }
}

#[cfg(test)]
fn once_each(given: &[Arc<str>]) -> Vec<Arc<str>> {
    let is_first = |(place, key): &(usize, &Arc<str>)| !given.iter().take(*place).any(|before| before == *key);
    given.iter().enumerate().filter(is_first).map(|(_, key)| Arc::clone(key)).collect()
}

impl Entry {
    /// Waits for all keys. A body borrows those that its outer bodies hold.
    pub(super) async fn enter_all(&self, set: &KeySet, is_body: bool) -> Result<Held, LockError> {
        let times = self.times();
        let (mut borrowed, mut turns, mut own) = (Vec::new(), Vec::new(), Vec::new());
        for request in &set.requests {
            let Some(outer) = self.find_outer(request, is_body)? else {
                own.push(request);
                continue;
            };
            turns.extend(self.wait_for_siblings(&outer, request, times.give_up).await?);
            borrowed.push((outer.hold().borrow(request.fenced, times.latest).await?, request));
        }
        let times = Whole { is_begun: !borrowed.is_empty(), ..times };
        let acquired = self.gather(&own, &borrowed, times);
        let named = own.first().copied().unwrap_or(&self.request);
        let span = own.first().and_then(|first| WaitSpan::begin(&first.key, first.prefix()));
        let first_path = |holds: &Vec<Hold>| holds.first().map(|hold| hold.handle().path());
        let (holds, span) = wait_inside(span, named, acquired, first_path).await?;
        let borrowed = borrowed.into_iter().map(|(handle, _)| Locked::Borrowed(handle));
        let mut locks: Vec<_> = holds.into_iter().map(Locked::Held).chain(borrowed).collect();
        locks.sort_by(|a, b| a.handle().key().cmp(b.handle().key()));
        let guard = LockGuard::of_all(locks, set.given.clone(), turns, span);
        Ok(Held::new(guard.ok_or_else(|| KeySet::no_key(&self.request.key))?, self.request.body, None))
    }

    /// Gathers the holds of all `requests`, which are sorted by name. On an error nothing stays locked.
    async fn gather(
        &self,
        requests: &[&ResolvedRequest],
        borrowed: &[Borrowed<'_>],
        mut times: Whole,
    ) -> Result<Vec<Hold>, LockError> {
        let start = times.give_up.start();
        let (mut held, mut refused) = (Vec::with_capacity(requests.len()), None);
        let alive = KeepAlive::new(start);
        loop {
            let gathering = async {
                self.gather_more(requests, &mut held, &mut refused, times, &alive).await?;
                if held.len() == requests.len() {
                    self.begin(requests, &held, borrowed, times.latest).await?;
                }
                Ok::<_, LockError>(held.len())
            };
            let outcome = keep_alive(&alive, gathering).await;
            // A retry begins later than the whole request.
            times.is_begun = true;
            let error = match outcome {
                Some(Ok(had)) if had == requests.len() => return Ok(held),
                Some(Ok(_)) => continue,
                Some(Err(error)) => error,
                None => {
                    // This task was not polled for too long. It continues with the first key that was lost.
                    let left = held.iter().position(|hold| !hold.handle().is_valid()).unwrap_or(held.len());
                    held.truncate(left);
                    if held.is_empty() {
                        alive.forget_holds();
                    }
                    if !times.give_up.has_passed() {
                        continue;
                    }
                    self.polled_late(requests.get(left), refused.take(), times)
                }
            };
            mutant!(HalfTakenSetKept => std::mem::forget(std::mem::take(&mut held)));
            // Others may wait for these locks: the releases are on their way before the caller continues.
            let releases = join_all(held.drain(..).map(Hold::release));
            let _ = timeout(OVERTIME.min(times.latest.remaining()), releases).await;
            // If a key was lost while the task waited for the others, start again.
            if !error.is_lost() || times.give_up.has_passed() {
                return Err(self.refused(error, start));
            }
        }
    }

    /// Continues after the keys in `held`: tries all others, or waits for the next.
    async fn gather_more(
        &self,
        requests: &[&ResolvedRequest],
        held: &mut Vec<Hold>,
        refused: &mut Option<LockError>,
        mut times: Whole,
        alive: &Arc<KeepAlive>,
    ) -> Result<(), LockError> {
        let rest = requests.get(held.len()..).unwrap_or_default();
        // A key that a task of this process holds is not worth a command.
        let is_in_use = |request: &&ResolvedRequest| self.engine.core().is_in_use(&request.key);
        let tried = rest.get(..rest.iter().position(is_in_use).unwrap_or(rest.len())).unwrap_or_default();
        if tried.len() > 1 {
            let mut behind = None;
            let parts: Vec<_> = tried.iter().map(|key| key.part_of(times, Duration::ZERO, alive)).collect();
            for outcome in join_all(parts.iter().map(|part| self.engine.acquire(part))).await {
                match outcome {
                    // A try keeps its grants here, since `gather` releases all of them before it ends.
                    Ok(hold) if behind.is_none() || times.is_try() => held.push(hold),
                    // A task that waits for a key holds no later key.
                    Ok(hold) => drop(hold),
                    Err(error) => behind = behind.or(Some(error)),
                }
            }
            refused.clone_from(&behind);
            match behind {
                Some(error) if times.is_try() => return Err(error),
                None if tried.len() == rest.len() => return Ok(()),
                // No time is left to wait for the busy key.
                Some(error) if times.give_up.has_passed() => {
                    // A part that is a try is not counted by itself.
                    if let (Some(request), LockError::Timeout { .. }) = (requests.get(held.len()), &error) {
                        self.engine.core().note_timeout(request, times.give_up.start().elapsed(), &error, None);
                    }
                    return Err(error);
                }
                _ => times.is_begun = true,
            }
        }
        let Some(next) = requests.get(held.len()) else { return Ok(()) };
        let was_refused = matches!(refused, Some(LockError::Timeout { .. }));
        times.was_refused = mutant!(RefusalForgotten => false, else was_refused);
        let left = if times.is_try() { Duration::ZERO } else { times.give_up.remaining().max(LEAST) };
        held.push(self.engine.acquire(&next.part_of(times, left, alive)).await?);
        Ok(())
    }

    /// The error of a request that lacks `key` because its task was polled too late. If the last answer was a refusal, that decides.
    fn polled_late(&self, key: Option<&&ResolvedRequest>, refused: Option<LockError>, times: Whole) -> LockError {
        let Some(refused) = refused.filter(|_| !times.is_try()) else {
            return StoreError::polled_late().of_lock(key.map_or(&self.request.key, |request| &request.key));
        };
        if let LockError::Timeout { .. } = &refused {
            self.engine.core().note_timeout(&self.request, times.give_up.start().elapsed(), &refused, None);
        }
        refused
    }

    /// The times of a request that begins now.
    fn times(&self) -> Whole {
        let (start, wait) = (Moment::now(), self.request.timeout);
        let answer = answer_time(wait, self.engine.core().settings().command_timeout);
        let latest = if wait.is_zero() { answer } else { wait };
        let end = Deadline::new(start, latest.saturating_add(OVERTIME).max(answer));
        let latest = mutant!(TimesOfKeysAddUp => end.later_by(answer), else end);
        Whole { give_up: Deadline::new(start, wait), latest, is_begun: false, was_refused: false }
    }

    /// Starts the time of all holds. Fails when one of them was lost meanwhile.
    ///
    /// First the store confirms each `at_least`: a request that fails must not keep others out.
    async fn begin(
        &self,
        requests: &[&ResolvedRequest],
        held: &[Hold],
        borrowed: &[Borrowed<'_>],
        by: Deadline,
    ) -> Result<(), LockError> {
        let own = || held.iter().map(Hold::handle).zip(requests);
        let nested = || borrowed.iter().map(|(handle, request)| (handle, request));
        if !self.request.at_least().is_zero() {
            let confirmed = own().chain(nested()).map(|(handle, request)| handle.confirm_for(request, by));
            join_all(confirmed).await.into_iter().collect::<Result<(), _>>()?;
        }
        let now = Moment::now();
        if let Some((lost, _)) = own().find(|(handle, _)| handle.remaining_at(now).is_zero()) {
            return Err(lost.lost_error(false));
        }
        if let Some((lost, _)) = own().find(|(handle, request)| !handle.begin(request, now)) {
            return Err(lost.lost_error(false));
        }
        nested().for_each(|(handle, request)| handle.keep_out(request, now));
        Ok(())
    }

    /// The error of a request that did not get all its keys. Each try was only a part of the request.
    fn refused(&self, error: LockError, start: Moment) -> LockError {
        match error {
            LockError::Timeout { key, holder, note, held_here, frees_in, rests, .. } => {
                let is_try = self.request.is_try();
                let waited = if is_try { Duration::ZERO } else { start.elapsed() };
                let error = LockError::Timeout { key, waited, holder, note, held_here, frees_in, rests };
                if is_try {
                    self.engine.core().note_timeout(&self.request, waited, &error, None);
                }
                error
            }
            error => error,
        }
    }
}

/// Not zero: that would be a single try, which waits longer.
const LEAST: Duration = Duration::from_nanos(1);
