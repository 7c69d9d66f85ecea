//! `lockctl` as a user runs it, on the test's own servers.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test fails by panicking")]

mod doctor;
mod listing;
mod looking;
mod papers;
mod running;
mod screen;
mod servers;
mod tls;

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use lock_runtime::LockManager;
use serde_json::Value;
use tests::server::Server;

const SOON: Duration = Duration::from_secs(10);
/// The commands that every user of locks needs, as in docs/protocol.md.
const LEAST_RIGHTS: &str = "+set +get +del +pexpire +pttl +exists +zadd +zpopmin +zrange +zrem +zscore +time +publish +subscribe \
    +eval +evalsha";

/// The program with these arguments, and without an address in the environment.
fn lockctl(arguments: &[&str]) -> assert_cmd::Command {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_lockctl"));
    command.args(arguments).env_remove("REDIS_URL").timeout(Duration::from_secs(60));
    command
}

/// The program with these arguments, on a server.
fn on(url: &str, arguments: &[&str]) -> assert_cmd::Command {
    let mut command = lockctl(arguments);
    command.env("REDIS_URL", url);
    command
}

/// The program, receiving all signals, even those that a shell made these tests ignore in the background.
fn hearing(arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_lockctl")]).args(arguments);
    command
}

/// Starts the program in the background.
fn start(url: &str, arguments: &[&str]) -> Child {
    let mut command = hearing(arguments);
    command.env("REDIS_URL", url).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

fn json(output: &[u8]) -> Value {
    serde_json::from_slice(output).unwrap_or_else(|error| panic!("{error}: {}", text(output)))
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

/// A runtime, a server and a manager on it, for tests that hold locks.
struct Held {
    runtime: tokio::runtime::Runtime,
    server: Server,
    locks: LockManager,
}

impl Held {
    fn new(label: &str) -> Self {
        let (runtime, server) = (tokio::runtime::Runtime::new().unwrap(), Server::start());
        let connecting = LockManager::builder().url(&server.url()).label(label).connect();
        let locks = runtime.block_on(connecting).unwrap();
        Self { runtime, server, locks }
    }
}
