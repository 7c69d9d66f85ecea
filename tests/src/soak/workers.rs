//! [`Workers`]: the worker processes of a round; none outlives it.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::worker::Role;
use crate::child;
use history::event::{now, span};

/// Processes that can be stopped, killed and started again.
#[derive(Debug)]
pub struct Workers {
    slots: Vec<Slot>,
    role: Role,
    test: Option<&'static str>,
    beside: Option<PathBuf>,
}

#[derive(Debug)]
struct Slot {
    child: Option<Child>,
    generation: u32,
    stopped: bool,
}

impl Workers {
    /// Starts the workers. `test` is the test of this binary that runs a worker; `None` when `main` does. Every second worker runs the
    /// program `beside`, if there is one.
    #[must_use]
    pub fn start(role: Role, test: Option<&'static str>, beside: Option<&Path>) -> Self {
        let slots = (0..role.plan.workers).map(|_| Slot { child: None, generation: 0, stopped: false }).collect();
        let mut workers = Self { slots, role, test, beside: beside.map(Path::to_owned) };
        for number in 0..workers.slots.len() {
            workers.spawn(number);
        }
        workers
    }

    /// Maps a random number to a worker.
    #[must_use]
    pub fn choose(&self, victim: usize) -> usize {
        victim % self.slots.len()
    }

    /// A worker's name and generation.
    #[must_use]
    pub fn name(&self, number: usize) -> String {
        format!("w{number}.{}", self.slots[number].generation)
    }

    /// Whether the worker runs and is not stopped.
    #[must_use]
    pub fn is_running(&self, number: usize) -> bool {
        self.slots[number].child.is_some() && !self.slots[number].stopped
    }

    fn spawn(&mut self, number: usize) {
        let role = Role { name: self.name(number), ..self.role.clone() };
        let role = serde_json::to_string(&role).expect("a role is plain data");
        let mut command = match self.beside.as_ref().filter(|_| number % 2 == 1) {
            Some(program) => child::command_of(program, None, &role),
            None => child::command(self.test, &role),
        };
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        self.slots[number].child = Some(child.expect("can't start this binary again"));
    }

    /// Suspends a worker (`SIGSTOP`).
    pub fn stop(&mut self, number: usize) {
        self.signal(number, Signal::STOP);
        self.slots[number].stopped = true;
    }

    /// Continues a suspended worker.
    pub fn go_on(&mut self, number: usize) {
        self.signal(number, Signal::CONT);
        self.slots[number].stopped = false;
    }

    /// Kills a worker, like a crash.
    pub fn kill(&mut self, number: usize) {
        self.slots[number].kill();
    }

    /// Starts a worker again under a new name.
    pub fn respawn(&mut self, number: usize) {
        self.slots[number].generation += 1;
        self.spawn(number);
    }

    /// Waits until all workers exit. It kills those that don't, and the checker will report that their end is missing.
    pub fn wait(&mut self, bound: Duration, is_over: &dyn Fn() -> bool) {
        let end = now().saturating_add(span(bound));
        for slot in &mut self.slots {
            while let Some(child) = &mut slot.child {
                if child.try_wait().expect("the child's state").is_some() {
                    slot.child = None;
                } else if now() > end || is_over() {
                    slot.kill();
                } else {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }

    fn signal(&self, number: usize, signal: Signal) {
        if let Some(child) = &self.slots[number].child {
            // An exited child keeps its id until it is waited for.
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }
}

impl Slot {
    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.stopped = false;
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.slots.iter_mut().for_each(Slot::kill);
    }
}
