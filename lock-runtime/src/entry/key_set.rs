//! [`KeySet`]: several keys that are locked together, all or none.
//!
//! First all keys are tried at once: what is free on one server costs one round trip. When a key is busy, what was granted behind it
//! (in the order of the names) is released, and the task waits for the busy key. Then it goes on behind it. So a task that waits
//! for a key holds only keys before it, and no tasks wait for each other in a circle.
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
use crate::store::Store as _;
use crate::timing::OVERTIME;
use crate::{InvalidKey, LockError, LockGuard};

/// A hold of an outer body, and the nested request that has it as well.
type Borrowed<'a> = (HoldHandle, &'a ResolvedRequest);

/// A request has at most this many keys. A busy machine can't acquire tens of thousands in time: the answers come so late that the asks
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

    /// Each request is as `like`, but for its name.
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

    /// Gathers the holds of all `requests`, which are in the order of their names. On an error nothing stays locked.
    async fn gather(
        &self,
        requests: &[&ResolvedRequest],
        borrowed: &[Borrowed<'_>],
        mut times: Whole,
    ) -> Result<Vec<Hold>, LockError> {
        let start = times.give_up.start();
        let mut held = Vec::with_capacity(requests.len());
        let alive = KeepAlive::new(start);
        loop {
            let gathering = async {
                self.gather_more(requests, &mut held, times, &alive).await?;
                if held.len() == requests.len() {
                    self.begin(requests, &held, borrowed, times.latest).await?;
                }
                Ok::<_, LockError>(held.len())
            };
            let outcome = keep_alive(&alive, gathering).await;
            // What is asked for again does not begin with the whole.
            times.is_begun = true;
            let error = match outcome {
                Some(Ok(had)) if had == requests.len() => return Ok(held),
                Some(Ok(_)) => continue,
                Some(Err(error)) => error,
                None => {
                    // This task was not polled for too long. It goes on with the first key that was lost.
                    let left = held.iter().position(|hold| !hold.handle().is_valid()).unwrap_or(held.len());
                    held.truncate(left);
                    if !times.give_up.has_passed() {
                        continue;
                    }
                    self.polled_late(requests.get(left), times)
                }
            };
            mutant!(HalfTakenSetKept => std::mem::forget(std::mem::take(&mut held)));
            // Others may wait for what is released: its release is on its way before the caller goes on.
            let releases = join_all(held.drain(..).map(Hold::release));
            let _ = timeout(OVERTIME.min(times.latest.remaining()), releases).await;
            // One of the first keys was lost while the task waited for the others.
            if !error.is_lost() || times.give_up.has_passed() {
                return Err(self.refused(error, start));
            }
        }
    }

    /// Goes on behind the keys that are `held`: tries all others, or waits for the next.
    async fn gather_more(
        &self,
        requests: &[&ResolvedRequest],
        held: &mut Vec<Hold>,
        mut times: Whole,
        alive: &Arc<KeepAlive>,
    ) -> Result<(), LockError> {
        let rest = requests.get(held.len()..).unwrap_or_default();
        // What a task here holds is not worth a command.
        let has_turn_here = |request: &&ResolvedRequest| self.engine.core().has_turn_here(&request.key);
        let tried = rest.get(..rest.iter().position(has_turn_here).unwrap_or(rest.len())).unwrap_or_default();
        if tried.len() > 1 {
            let mut behind = None;
            let parts: Vec<_> = tried.iter().map(|key| key.part_of(times, Duration::ZERO, alive)).collect();
            for outcome in join_all(parts.iter().map(|part| self.engine.acquire(part))).await {
                match outcome {
                    // What a try has got is released before it ends: all of it.
                    Ok(hold) if behind.is_none() || times.is_try() => held.push(hold),
                    // A task that waits for a key holds no key behind it.
                    Ok(hold) => drop(hold),
                    Err(error) => behind = behind.or(Some(error)),
                }
            }
            match behind {
                Some(error) if times.is_try() => return Err(error),
                None if tried.len() == rest.len() => return Ok(()),
                // There is no time for more than the answer to the try.
                Some(error) if times.give_up.has_passed() => {
                    // A try is not counted by itself.
                    if let (Some(request), LockError::Timeout { .. }) = (requests.get(held.len()), &error) {
                        self.engine.core().note_timeout(request, times.give_up.start().elapsed(), &error, None);
                    }
                    return Err(error);
                }
                _ => times.is_begun = true,
            }
        }
        let Some(next) = requests.get(held.len()) else { return Ok(()) };
        let left = if times.is_try() { Duration::ZERO } else { times.give_up.remaining().max(LEAST) };
        held.push(self.engine.acquire(&next.part_of(times, left, alive)).await?);
        Ok(())
    }

    /// The error of a request whose task was polled too late, and that lacks this `key`.
    fn polled_late(&self, key: Option<&&ResolvedRequest>, times: Whole) -> LockError {
        let (key, waited) =
            (key.map_or(&self.request.key, |request| &request.key).to_string(), times.give_up.start().elapsed());
        if times.is_try() {
            return self.engine.core().store().unanswered(&key, waited).of_lock(&key);
        }
        let error = LockError::Timeout { key, waited, holder: None, held_here: false, frees_in: None, rests: false };
        self.engine.core().note_timeout(&self.request, waited, &error, None);
        error
    }

    /// The times of a request that begins now.
    fn times(&self) -> Whole {
        let (start, wait) = (Moment::now(), self.request.timeout);
        let answer = answer_time(wait, self.engine.core().settings().command_timeout);
        let latest = if wait.is_zero() { answer } else { wait };
        let end = Deadline::new(start, latest.saturating_add(OVERTIME).max(answer));
        let latest = mutant!(TimesOfKeysAddUp => end.later_by(answer), else end);
        Whole { give_up: Deadline::new(start, wait), latest, is_begun: false }
    }

    /// Begins the time of all holds. An error when one of them was lost meanwhile.
    ///
    /// First the store confirms what keeps others out: a request that fails keeps nobody out.
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

    /// The error of a request that could not have all its keys. Each try is only a part of the request.
    fn refused(&self, error: LockError, start: Moment) -> LockError {
        match error {
            LockError::Timeout { key, holder, held_here, frees_in, rests, .. } => {
                let is_try = self.request.is_try();
                let waited = if is_try { Duration::ZERO } else { start.elapsed() };
                let error = LockError::Timeout { key, waited, holder, held_here, frees_in, rests };
                if is_try {
                    self.engine.core().note_timeout(&self.request, waited, &error, None);
                }
                error
            }
            error => error,
        }
    }
}

/// A timeout of zero would be a single try, which waits for longer.
const LEAST: Duration = Duration::from_nanos(1);
