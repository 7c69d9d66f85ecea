//! `lockctl list [PATTERN]`

use std::collections::BTreeSet;
use std::process::ExitCode;

use futures_util::future::join_all;
use lock_runtime::{LockManager, LockServer};

use crate::arguments::List;
use crate::failure::{AWAY, Failure, tell};
use crate::output::{Lock, Output, lock_table};
use crate::place::Place;
use crate::server::{items, text};

/// How many keys the server looks at per command: some tenths of a millisecond.
const KEYS_PER_SCAN: u64 = 1000;
/// How many keys are looked at together.
const AT_ONCE: usize = 100;

pub(crate) async fn run(place: &Place, output: &Output, list: &List) -> Result<ExitCode, Failure> {
    let locks = place.connect().await?;
    let found = find(&locks, list).await?;
    output.print(&found.locks, || match found.locks.as_slice() {
        [] => "no lock is held".to_owned(),
        locks => lock_table(locks),
    })?;
    if found.is_cut {
        tell(&"there may be more: raise --limit or --max-keys, or give a pattern");
    }
    Ok(ExitCode::SUCCESS)
}

/// The locks that are held, in the order of their names.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) locks: Vec<Lock>,
    /// A bound ended the search.
    pub(crate) is_cut: bool,
}

/// Looks through all servers with SCAN, which never stops a server for long. A key is a lock when its value is a token of
/// a manager; `who` shows also what other clients lock.
pub(crate) async fn find(locks: &LockManager, list: &List) -> Result<Found, Failure> {
    let mut found = Found::default();
    let mut seen = BTreeSet::new();
    for server in locks.servers() {
        scan(locks, &server, list, &mut seen, &mut found).await?;
    }
    found.locks.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

async fn scan(
    locks: &LockManager,
    server: &LockServer,
    list: &List,
    seen: &mut BTreeSet<String>,
    found: &mut Found,
) -> Result<(), Failure> {
    let (count, mut cursor, mut looked_at) = (KEYS_PER_SCAN.to_string(), "0".to_owned(), 0);
    loop {
        let words = ["SCAN", &cursor, "MATCH", &list.pattern, "COUNT", &count, "TYPE", "string"];
        let reply = server.ask(&words).await.and_then(|said| said);
        let reply =
            reply.map_err(|error| Failure::new(AWAY, format!("{}: {error} (`list` needs +scan)", server.address())))?;
        let [next, keys] =
            <[_; 2]>::try_from(items(reply)).map_err(|_| Failure::new(AWAY, "the server's reply is no SCAN"))?;
        cursor = text(&next).unwrap_or_default();
        looked_at += KEYS_PER_SCAN;
        // Not a helper key, nor one that SCAN returned before, or that a server of a quorum has as well.
        let mut names: Vec<String> = items(keys).iter().filter_map(text).collect();
        names.retain(|name| !name.starts_with('{') && seen.insert(name.clone()));
        for some in names.chunks(AT_ONCE) {
            let looks = some.iter().map(|name| locks.inspect_named(name));
            // A name that no lock can have is another kind of key, and a lock may be gone by now.
            let held = join_all(looks).await.into_iter().filter_map(|look| look.ok().flatten());
            found.locks.extend(held.filter(|info| info.holder.is_some()).map(Lock::from));
            if found.locks.len() >= list.limit {
                found.is_cut = found.locks.len() > list.limit || cursor != "0";
                found.locks.truncate(list.limit);
                return Ok(());
            }
        }
        if cursor == "0" || cursor.is_empty() {
            return Ok(());
        }
        if looked_at >= list.max_keys {
            found.is_cut = true;
            return Ok(());
        }
    }
}
