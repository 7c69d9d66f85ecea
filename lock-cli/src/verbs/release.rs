//! `lockctl release --force NAME`

use std::process::ExitCode;

use serde::Serialize;

use crate::failure::Failure;
use crate::output::{Output, clean};
use crate::place::Place;

#[derive(Serialize)]
struct Released<'a> {
    name: &'a str,
    released: bool,
}

pub(crate) async fn run(place: &Place, output: &Output, name: &str) -> Result<ExitCode, Failure> {
    let locks = place.connect().await?;
    let released = locks.force_release_named(name).await?;
    output.print(&Released { name, released }, || {
        let name = clean(name);
        if released { format!("released `{name}` by force") } else { format!("nobody holds `{name}`") }
    })?;
    Ok(if released { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
