//! `lockctl who NAME`

use std::process::ExitCode;

use lock_runtime::LockManager;

use crate::failure::Failure;
use crate::output::{DOUBT, GOOD, HEAD, Lock, Output, clean};
use crate::place::Place;

pub(crate) async fn run(place: &Place, output: &Output, name: &str) -> Result<ExitCode, Failure> {
    let locks: LockManager = place.connect().await?;
    let lock = locks.inspect_named(name).await?.map(Lock::from);
    output.print(&lock, || match &lock {
        None => format!(
            "{GOOD}free{GOOD:#}: nobody holds `{}`\nA name begins with its namespace, where there is one. `lockctl list` shows \
             the names that are held.",
            clean(name)
        ),
        Some(lock) => describe(lock),
    })?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn describe(lock: &Lock) -> String {
    let waiting: Vec<String> = lock.waiting.iter().map(|label| clean(label)).collect();
    let waiting = if waiting.is_empty() { "nobody".to_owned() } else { waiting.join(", ") };
    let (name, holder, mode, left) = (clean(&lock.name), lock.holder_text(), &lock.mode, lock.left_text());
    let until = if lock.rests || lock.awaits_adopter { "then it is free" } else { "if the holder does not renew" };
    let (held, note) = (lock.held_text(), lock.note_text());
    format!(
        "{HEAD}{name}{HEAD:#}\nholder   {DOUBT}{holder}{DOUBT:#}\nnote     {note}\nheld     {held}\nmode     {mode}\n\
         left     {left} ({until})\nwaiting  {waiting}"
    )
}
