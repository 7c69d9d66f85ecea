//! `lockctl release --force NAME`

use std::process::ExitCode;
use std::time::Duration;

use lock_runtime::LockInfo;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{Output, clean};
use crate::place::Place;
use crate::verbs::who::describe;

#[derive(Serialize)]
struct Released<'a> {
    name: &'a str,
    released: bool,
}

pub(crate) async fn run(place: &Place, output: &Output, name: &str, is_foreign: bool) -> Result<ExitCode, Failure> {
    let locks = place.connect().await?;
    if let Some(data) = locks.inspect_named(name).await?.filter(|lock| !is_foreign && may_be_data(lock)) {
        let shown = describe(&data.into());
        return Err(Failure::misuse(format!(
            "this may be no lock: its value is of another client, and has no expiry. It would be deleted. If it is a lock, give \
             --foreign as well.\n{shown}"
        )));
    }
    let released = locks.force_release_named(name).await?;
    output.print(&Released { name, released }, || {
        let name = clean(name);
        if released { format!("released `{name}` by force") } else { format!("nobody holds `{name}`") }
    })?;
    Ok(if released { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether the key may have what an application keeps there. Only a lock of another kind of client that has no expiry looks the same.
fn may_be_data(lock: &LockInfo) -> bool {
    lock.holder.is_none() && lock.remaining == Duration::MAX
}
