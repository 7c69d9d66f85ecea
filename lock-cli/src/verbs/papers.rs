//! `lockctl completions SHELL` and `lockctl man`: what packages install beside the program.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::failure::Failure;

pub(crate) fn completions(shell: Shell) -> ExitCode {
    let mut command = Arguments::command();
    clap_complete::generate(shell, &mut command, "lockctl", &mut std::io::stdout());
    ExitCode::SUCCESS
}

pub(crate) fn man() -> Result<ExitCode, Failure> {
    clap_mangen::Man::new(Arguments::command()).render(&mut std::io::stdout())?;
    Ok(ExitCode::SUCCESS)
}
