//! `lockctl list [PATTERN]`

use std::collections::BTreeSet;
use std::process::ExitCode;

use futures_util::future::{join_all, try_join_all};
use lock_runtime::{LockError, LockManager, LockServer};

use crate::arguments::List;
use crate::failure::{AWAY, Failure, tell};
use crate::output::{Lock, Output, lock_table};
use crate::place::Place;
use crate::server::{is_denied, items, text};

/// How many keys one command scans: some tenths of a millisecond for the server.
const KEYS_PER_SCAN: u64 = 1000;
/// How many keys are examined together.
const AT_ONCE: usize = 100;

pub(crate) async fn run(place: &Place, output: &Output, list: &List) -> Result<ExitCode, Failure> {
    let locks = place.connect().await?;
    let found = find(&locks, list).await;
    found.show(output)?;
    Ok(found.code())
}

/// The held locks, sorted by name.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) locks: Vec<Lock>,
    /// A limit ended the search early.
    pub(crate) is_cut: bool,
    /// What could not be examined, and why. Locks may be missing because of it.
    pub(crate) problems: Vec<String>,
}

impl Found {
    /// Prints the locks, and reports what is missing.
    pub(crate) fn show(&self, output: &Output) -> Result<(), Failure> {
        // "No lock is held" may be printed only after all servers were searched.
        if self.problems.is_empty() || !self.locks.is_empty() {
            output.print(&self.locks, || match self.locks.as_slice() {
                [] => "no lock is held".to_owned(),
                locks => lock_table(locks),
            })?;
        }
        for problem in &self.problems {
            tell(problem);
        }
        if self.is_cut {
            tell(&"there may be more: raise --limit or --max-keys, or give a pattern");
        }
        Ok(())
    }

    pub(crate) fn code(&self) -> ExitCode {
        if self.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(AWAY) }
    }
}

/// Searches all servers with SCAN, which never blocks a server for long. Each string key costs the server a `GET` as well, and each lock a
/// script. A key is a lock if its value is a manager's token; `who` also shows the locks of other clients.
pub(crate) async fn find(locks: &LockManager, list: &List) -> Found {
    let mut search = Search { locks, list, seen: BTreeSet::new(), found: Found::default(), refusal: None };
    for server in locks.servers() {
        if let Err(problem) = search.scan(&server).await {
            search.found.problems.push(format!("{}: {problem}", server.address()));
        }
        if search.has_enough() {
            break;
        }
    }
    search.end()
}

struct Search<'a> {
    locks: &'a LockManager,
    list: &'a List,
    /// The locks examined so far: SCAN may return a key twice, and each server of a quorum has it.
    seen: BTreeSet<String>,
    found: Found,
    /// The first error of examining a lock.
    refusal: Option<LockError>,
}

impl Search<'_> {
    /// Searches a server. The error says why the rest of it was skipped.
    async fn scan(&mut self, server: &LockServer) -> Result<(), String> {
        let (count, mut cursor, mut looked_at) = (KEYS_PER_SCAN.to_string(), "0".to_owned(), 0);
        loop {
            let words = ["SCAN", &cursor, "MATCH", &self.list.pattern, "COUNT", &count, "TYPE", "string"];
            let reply = server.ask(&words).await.map_err(|away| away.to_string())?.map_err(|refusal| {
                if is_denied(&refusal) { format!("{refusal} (`list` needs +scan)") } else { refusal.to_string() }
            })?;
            let [next, keys] = <[_; 2]>::try_from(items(reply)).map_err(|_| "the server's reply is no SCAN")?;
            cursor = text(&next).unwrap_or_default();
            looked_at += KEYS_PER_SCAN;
            let mut names: Vec<String> = items(keys).iter().filter_map(text).collect();
            // Helper keys are no locks.
            names.retain(|name| !name.starts_with('{'));
            for some in names.chunks(AT_ONCE) {
                self.look_at(server, some).await?;
                if self.has_enough() {
                    return Ok(());
                }
            }
            if cursor == "0" || cursor.is_empty() {
                return Ok(());
            }
            if looked_at >= self.list.max_keys {
                self.found.is_cut = true;
                return Ok(());
            }
        }
    }

    /// Adds the locks among these keys. Most keys of a server may be something else.
    async fn look_at(&mut self, server: &LockServer, names: &[String]) -> Result<(), String> {
        // Only as much as a token may have: other values may have any size.
        let gets: Vec<_> = names.iter().map(|name| ["GETRANGE", name, "0", "1023"]).collect();
        let values = try_join_all(gets.iter().map(|get| server.ask(get))).await.map_err(|away| away.to_string())?;
        let may_be_lock = |value: &Result<_, _>| match value {
            Ok(value) => text(value).is_some_and(|value| LockManager::is_lock_value(&value)),
            // Examining the lock gives the reason, or finds its value elsewhere: the slot of a cluster may have moved.
            Err(_) => true,
        };
        let locks = names.iter().zip(&values).filter(|(_, value)| may_be_lock(value)).map(|(name, _)| name);
        let new: Vec<_> = locks.filter(|name| self.seen.insert((*name).clone())).collect();
        for look in join_all(new.iter().map(|name| self.locks.inspect_named(name))).await {
            match look {
                // The lock may be gone by now.
                Ok(lock) => self.found.locks.extend(lock.filter(|lock| lock.holder.is_some()).map(Lock::from)),
                // No lock can have this name.
                Err(LockError::InvalidKey { .. }) => {}
                Err(error) => {
                    self.refusal.get_or_insert(error);
                }
            }
        }
        Ok(())
    }

    /// Whether more locks were found than will be shown.
    fn has_enough(&self) -> bool {
        self.found.locks.len() > self.list.limit
    }

    fn end(self) -> Found {
        let is_cut = self.found.is_cut || self.has_enough();
        let Self { list, mut found, refusal, .. } = self;
        found.is_cut = is_cut;
        found.problems.extend(refusal.map(|refusal| refusal.to_string()));
        found.locks.sort_by(|one, other| one.name.cmp(&other.name));
        found.locks.truncate(list.limit);
        found
    }
}
