//! [`Record`]: what each command did to the server's keys, and what no command may do.

use std::collections::BTreeMap;

use history::Violation;
use history::event::{Change, NEVER};
use server_model::{Entry, Stored};

use super::time;
use crate::store::voter::MARKER;

/// The most that scripts read of a lock's key.
const LONGEST_TOKEN: usize = 1024;

#[derive(Default)]
pub(super) struct Record {
    /// The keys after the last command, and when they expire.
    keys: BTreeMap<String, (Stored, Option<u64>)>,
    seen: Vec<Violation>,
}

impl Record {
    /// Finds the changes of locks by comparing the server's keys with those before a command. `until` converts a server time to ours.
    pub(super) fn compare(
        &mut self,
        snapshot: Vec<(String, Entry)>,
        (now, end): (u64, u64),
        command: &[Vec<u8>],
        is_connected: impl Fn(&str) -> bool,
        until: impl Fn(u64) -> u64,
    ) -> Vec<(String, Change)> {
        let keys: BTreeMap<_, _> =
            snapshot.into_iter().map(|(key, entry)| (key, (entry.value, entry.expires_micros))).collect();
        let before = std::mem::replace(&mut self.keys, keys);
        let mut changes = Vec::new();
        for (key, (value, expires)) in &self.keys {
            // Also for a key that existed before with an expiry.
            let had_end = before.get(key).is_none_or(|(_, expires)| expires.is_some());
            if expires.is_none() && had_end && key != MARKER {
                self.seen.push(seen("C9 what the server keeps has an end", key, format!("{key} has none")));
            }
            if !is_lock(key) {
                continue;
            }
            let until = expires.map_or(NEVER, &until);
            let owner = before.get(key).filter(|(_, expires)| is_alive(*expires, now));
            let change = match owner {
                Some((owner, at)) if owner == value && at == expires => continue,
                Some((owner, _)) if owner == value => Change::Ends { until },
                owner => {
                    let token = text(value);
                    let queue = before.get(&format!("{{{key}}}:queue")).map(|(queue, _)| queue);
                    let was_queued = queue.is_some_and(|queue| contains(queue, &token));
                    // A token that enters the queue and leaves it in the same command.
                    let names = |token: &str| command.iter().any(|word| word == token.as_bytes());
                    let next = was_queued || owner.is_some_and(|(owner, _)| names(&token) && names(&text(owner)));
                    let process = token.rsplit_once('@').map_or("", |(_, process)| process);
                    if next && !is_connected(process) {
                        let text = format!("{key} was passed to {process}, which has no connection");
                        self.seen.push(seen("C6 grants reach somebody", key, text));
                    }
                    let first = queue.and_then(first).filter(|_| owner.is_none() && is_script(command));
                    let queue = self.keys.get(&format!("{{{key}}}:queue")).map(|(queue, _)| queue);
                    if let Some(first) = first.filter(|_| !was_queued && queue.is_some()) {
                        let text = format!("{key} was free, {first} queued, and {token} got it");
                        self.seen.push(seen("rule 4: a free lock is the queue's", key, text));
                    }
                    Change::Owned { token: short(&token), until, next }
                }
            };
            changes.push((key.clone(), change));
        }
        for (key, (_, expires)) in before.iter().filter(|(key, _)| is_lock(key)) {
            // A server that stalled past the end of a lease has not removed it.
            if !self.keys.contains_key(key) && is_alive(*expires, end) {
                changes.push((key.clone(), Change::Gone));
            }
        }
        changes
    }

    /// Every client waits while the server reads this many bytes for one command. A token is shorter.
    pub(super) fn on_read(&mut self, bytes: usize) {
        if bytes > LONGEST_TOKEN {
            self.seen.push(seen("C12 no large value is read", "", format!("{bytes} bytes are read")));
        }
    }

    pub(super) fn forget(&mut self) {
        self.keys.clear();
    }

    pub(super) fn see(&mut self, violation: Violation) {
        self.seen.push(violation);
    }

    pub(super) fn take_seen(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.seen)
    }
}

fn seen(check: &'static str, key: &str, text: String) -> Violation {
    let now = time::now().unwrap_or_default();
    Violation { check, text, key: Some(key.to_owned()), range: (now, now + 1) }
}

/// The server keeps a key until the end of the millisecond in which it expires.
fn is_alive(expires: Option<u64>, now: u64) -> bool {
    expires.is_none_or(|at| at / 1000 >= now / 1000)
}

fn is_lock(key: &str) -> bool {
    !key.starts_with('{') && !key.starts_with(super::foreign::GONE) && key != MARKER
}

fn text(value: &Stored) -> String {
    match value {
        Stored::String(text) => text.clone(),
        Stored::List(_) | Stored::Sorted(_) => String::new(),
    }
}

fn first(queue: &Stored) -> Option<&str> {
    let Stored::Sorted(entries) = queue else { return None };
    entries.first().map(String::as_str)
}

/// The plain claim does not check the queue.
fn is_script(command: &[Vec<u8>]) -> bool {
    command.first().is_some_and(|name| name.starts_with(b"EVAL"))
}

fn contains(queue: &Stored, token: &str) -> bool {
    let Stored::Sorted(entries) = queue else { return false };
    entries.iter().any(|entry| entry.ends_with(token))
}

/// A token without the random part: the same in each run of a seed.
fn short(token: &str) -> String {
    token.split_once('.').map_or(token, |(_, rest)| rest).to_owned()
}
