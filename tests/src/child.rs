//! [`Child`]: this test binary once more, as a process that can be killed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::patience::eventually_blocking;

/// A child process that runs one test of the same binary.
///
/// The test is one that does nothing unless [`role`] says that it is a child.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    lines: BufReader<std::process::ChildStdout>,
}

const ROLE: &str = "LOCK_TEST_CHILD";

/// What the parent gave this process to do; `None` in an ordinary run of the tests.
#[must_use]
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Says something to the parent; see [`Child::wait_for`].
pub fn say(word: &str) {
    println!("\nchild says {word}");
}

/// This binary once more, with `role` in its environment; with `test`, to run this one of its tests.
#[must_use]
pub fn command(test: Option<&str>, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary's path"));
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

    /// Runs a [`command`] that was made for it.
    #[must_use]
    pub fn by(command: &mut Command) -> Self {
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("this binary runs once more");
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

    /// Stops it in its tracks, as a suspended machine is. All its threads stand when this returns: the signal itself is seen by one
    /// thread, and on a busy machine the others go on until that one runs.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let id = Pid::from_child(&self.process);
        waitpid(Some(id), WaitOptions::UNTRACED).expect("the child stops");
    }

    /// Goes on after [`freeze`](Self::freeze).
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(self.process.id().cast_signed()).expect("a process id");
        kill_process(process, signal).expect("a signal to the own child");
    }

    /// Waits until it has ended by itself.
    pub fn wait_for_end(&mut self, bound: Duration) {
        let ended = || self.process.try_wait().expect("the child's state").is_some();
        eventually_blocking("the child ends", bound, ended);
    }

    /// Ends it as a crash does.
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
