//! [`Actor`]: a process that plays a part, and does not outlive its cell.

use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tests::child;

use crate::part::Part;

pub(crate) struct Actor {
    child: Child,
}

impl Actor {
    /// Starts it; `test` is the test of this binary that serves it, `None` when its `main` does.
    pub(super) fn start(part: &Part, test: Option<&'static str>) -> Self {
        let part = serde_json::to_string(part).expect("a part is plain data");
        let child = child::command(test, &part).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        Self { child: child.expect("this binary runs once more") }
    }

    /// Ends it as a crash does.
    pub(super) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops it where it is.
    pub(super) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it continue.
    pub(super) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Waits until it has ended; if it has not, the checker will miss its end.
    pub(super) fn wait_until(&mut self, end: Instant) {
        while self.child.try_wait().expect("the child's state").is_none() {
            if Instant::now() > end {
                return self.kill();
            }
            sleep(Duration::from_millis(5));
        }
    }

    fn signal(&self, signal: Signal) {
        // A child that has ended but was not waited for still has its id.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.kill();
    }
}
