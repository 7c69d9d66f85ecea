//! `lockctl release --force NAME`

use std::process::ExitCode;
use std::time::Duration;

use lock_runtime::{LockInfo, LockMode};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{Output, clean};
use crate::place::Place;
use crate::verbs::who::describe;

#[derive(Serialize)]
struct Outcome<'a> {
    name: &'a str,
    released: bool,
    /// The former holders.
    holders: Vec<String>,
}

pub(crate) async fn run(
    place: &Place,
    output: &Output,
    name: &str,
    holder: Option<&str>,
    is_foreign: bool,
) -> Result<ExitCode, Failure> {
    let locks = place.connect().await?;
    let seen = locks.inspect_named(name).await?;
    if let Some(data) = seen.as_ref().filter(|lock| !is_foreign && may_be_data(lock)) {
        let shown = describe(&data.clone().into());
        return Err(Failure::misuse(format!(
            "this may be no lock: its value is of another client, and has no expiry. It would be deleted. If it is a lock, give \
             --foreign as well.\n{shown}"
        )));
    }
    if let (Some(label), Some(lock)) = (holder, &seen)
        && (lock.mode == LockMode::Exclusive || !lock.holders.iter().any(|holder| holder == label))
    {
        let shown = describe(&lock.clone().into());
        return Err(Failure::misuse(format!(
            "--holder names one of several who share a lock, and `{}` is none of them:\n{shown}",
            clean(label)
        )));
    }
    let released = locks.force_release_named(name, holder).await?;
    let holders = match (holder, seen) {
        _ if !released => Vec::new(),
        (Some(label), _) => vec![label.to_owned()],
        (None, seen) => seen.map(|lock| lock.holders).unwrap_or_default(),
    };
    output.print(&Outcome { name, released, holders: holders.clone() }, || {
        let name = clean(name);
        let from = holders.iter().map(|holder| clean(holder)).collect::<Vec<_>>().join(", ");
        match (released, holders.as_slice()) {
            (false, _) => format!("nobody holds `{name}`"),
            (true, []) => format!("released `{name}` by force"),
            (true, [_]) => format!("released `{name}` by force, from {from}"),
            (true, all) => format!("released `{name}` by force, from all {} who held it: {from}", all.len()),
        }
    })?;
    Ok(if released { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether the value may be an application's data. Only a lock of another kind of client without an expiry looks the same.
fn may_be_data(lock: &LockInfo) -> bool {
    lock.holder.is_none() && lock.remaining == Duration::MAX
}
