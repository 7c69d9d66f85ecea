//! `lockctl completions SHELL` and `lockctl man`: what packages install with the program.

use std::io::Write as _;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::failure::Failure;

pub(crate) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "lockctl", &mut text);
    std::io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man() -> Result<ExitCode, Failure> {
    clap_mangen::Man::new(Arguments::command()).render(&mut std::io::stdout())?;
    Ok(ExitCode::SUCCESS)
}
