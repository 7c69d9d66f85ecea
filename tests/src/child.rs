//! [`Child`]: runs this test binary again, as a process that a test can kill.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::patience::eventually_blocking;

/// A child process that runs one test of the same binary.
///
/// That test does nothing unless [`role`] returns a role.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    lines: BufReader<std::process::ChildStdout>,
}

const ROLE: &str = "LOCK_TEST_CHILD";

/// The parent's role for this process; `None` in an ordinary run of the tests.
#[must_use]
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Sends a word to the parent, which waits with [`Child::wait_for`].
pub fn say(word: &str) {
    println!("\nchild says {word}");
}

/// This binary again, with `role` in its environment; with `test`, to run only that test.
#[must_use]
pub fn command(test: Option<&str>, role: &str) -> Command {
    command_of(&std::env::current_exe().expect("this binary's path"), test, role)
}

/// Like [`command`], with another binary.
#[must_use]
pub fn command_of(program: &Path, test: Option<&str>, role: &str) -> Command {
    let mut command = Command::new(program);
    if let Some(test) = test {
        command.args(["--exact", test, "--nocapture", "--include-ignored"]);
    }
    command.env(ROLE, role);
    command
}

impl Child {
    /// Runs the test named `test`, with `role` in its environment.
    #[must_use]
    pub fn of(test: &str, role: &str) -> Self {
        Self::by(&mut command(Some(test), role))
    }

    /// Spawns a [`command`].
    #[must_use]
    pub fn by(command: &mut Command) -> Self {
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("can't start this binary again");
        let lines = BufReader::new(process.stdout.take().expect("the child's output"));
        Self { process, lines }
    }

    /// Reads until the child says `word`.
    pub fn wait_for(&mut self, word: &str) {
        let awaited = format!("child says {word}");
        let mut line = String::new();
        while line.trim() != awaited {
            line.clear();
            let count = self.lines.read_line(&mut line).expect("the child's output");
            assert!(count > 0, "the child ended without saying {word}");
        }
    }

    /// Suspends the process, as when its machine is suspended. Returns when all its threads have stopped: one thread handles the signal,
    /// and on a busy machine the others keep running until it does.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let id = Pid::from_child(&self.process);
        waitpid(Some(id), WaitOptions::UNTRACED).expect("the child stops");
    }

    /// Continues a process that [`freeze`](Self::freeze) suspended.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks the process to exit (`SIGTERM`).
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(self.process.id().cast_signed()).expect("a process id");
        kill_process(process, signal).expect("a signal to the own child");
    }

    /// Waits until the process exits by itself.
    pub fn wait_for_end(&mut self, bound: Duration) {
        let ended = || self.process.try_wait().expect("the child's state").is_some();
        eventually_blocking("the child ends", bound, ended);
    }

    /// Kills the process, like a crash.
    pub fn kill(&mut self) {
        self.process.kill().expect("the child runs");
        self.process.wait().expect("the killed child");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
