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
        None => format!("{GOOD}free{GOOD:#}: nobody holds `{}`", clean(name)),
        Some(lock) => described(lock),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn described(lock: &Lock) -> String {
    let mut text = format!("{HEAD}{}{HEAD:#}\n", clean(&lock.name));
    text += &format!("holder   {DOUBT}{}{DOUBT:#}\n", lock.holder_text());
    text += &format!("mode     {}\n", lock.mode);
    text += &format!("left     {} (if the holder does not renew)\n", lock.left_text());
    let waiting: Vec<String> = lock.waiting.iter().map(|label| clean(label)).collect();
    text += &format!("waiting  {}\n", if waiting.is_empty() { "nobody".to_owned() } else { waiting.join(", ") });
    text
}
