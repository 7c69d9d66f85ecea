//! `lockctl`: shows who holds a lock, takes it away, and runs a command under it.

mod arguments;
#[cfg(feature = "tls")]
mod certificates;
mod failure;
mod output;
mod place;
mod sample;
mod server;
mod verbs;

use std::process::ExitCode;

use clap::Parser as _;

use arguments::{Arguments, Verb};
use failure::Failure;
use output::Output;
use place::Place;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::internal(&error).report(),
    };
    match runtime.block_on(run(arguments)) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments { place, json, verb } = arguments;
    let output = Output::new(json);
    let place = Place::new(place);
    match verb {
        Verb::List(list) => verbs::list::run(&place, &output, &list).await,
        Verb::Who { name } => verbs::who::run(&place, &output, &name).await,
        Verb::Watch(watch) => verbs::watch::run(&place, &output, &watch).await,
        Verb::Release { name, holder, foreign, .. } => {
            verbs::release::run(&place, &output, &name, holder.as_deref(), foreign).await
        }
        Verb::Run(run) => verbs::run::run(&place, run).await,
        Verb::Bench(bench) => verbs::bench::run(&place, &output, &bench).await,
        Verb::Doctor { server, prefix } => verbs::doctor::run(&place, &output, server, prefix.as_deref()).await,
        Verb::Completions { shell } => verbs::papers::completions(shell),
        Verb::Man => verbs::papers::man(),
    }
}
