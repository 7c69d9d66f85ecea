//! Locks of other languages: each runs in a process of its language, which speaks the protocol of the benchmark's children.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::Who;
use crate::child::Run;
use crate::workload::Workload;

/// What runs another language's lock.
struct Language {
    interpreter: &'static str,
    /// The environment variable that names another interpreter.
    setting: &'static str,
    program: &'static str,
    /// The option in front of a program text.
    option: &'static str,
    /// A program that succeeds if the lock's library is installed.
    probe: &'static str,
    /// The lock that the program is told to use.
    lock: &'static str,
}

const PYTHON: Language = Language {
    interpreter: ".venv/bin/python",
    setting: "BENCH_PYTHON",
    program: include_str!("foreign/locks.py"),
    option: "-c",
    probe: "import redis",
    lock: "redis-py",
};

const NODE: Language = Language {
    interpreter: "node",
    setting: "BENCH_NODE",
    program: include_str!("foreign/locks.js"),
    option: "-e",
    probe: "require('redlock'); require('ioredis')",
    lock: "redlock",
};

/// Where npm has put the packages for node-redlock: `npm install --prefix .venv redlock@5.0.0-beta.2 ioredis@5`.
const NODE_MODULES: &str = ".venv/node_modules";

impl Language {
    /// `None` for a lock that runs in the benchmark's own processes.
    fn of(who: Who) -> Option<Self> {
        Some(match who {
            Who::RedisPy => PYTHON,
            Who::RedisPyTuned => Self { lock: "redis-py-tuned", ..PYTHON },
            Who::Pottery => Self { probe: "import pottery, redis", lock: "pottery", ..PYTHON },
            Who::NodeRedlock => NODE,
            Who::NodeRedlockTuned => Self { lock: "redlock-tuned", ..NODE },
            _ => return None,
        })
    }

    fn command(&self, interpreter: &PathBuf, program: &str) -> Command {
        let mut command = Command::new(interpreter);
        let modules = std::env::current_dir().unwrap_or_default().join(NODE_MODULES);
        command.env("NODE_PATH", modules).args([self.option, program]);
        command
    }

    /// The interpreter with the lock's library.
    fn interpreter(&self) -> Option<PathBuf> {
        let interpreter = std::env::var_os(self.setting).map_or_else(|| self.interpreter.into(), PathBuf::from);
        let probe = self.command(&interpreter, self.probe).stderr(Stdio::null()).status();
        probe.is_ok_and(|status| status.success()).then_some(interpreter)
    }
}

impl Who {
    /// Whether it runs in a process of another language.
    pub(crate) fn is_foreign(self) -> bool {
        Language::of(self).is_some()
    }

    /// Whether it is of another language, and not installed here.
    pub(crate) fn is_missing(self) -> bool {
        Language::of(self).is_some_and(|language| language.interpreter().is_none())
    }
}

/// The process for `run`.
pub(crate) fn command(run: &Run) -> Result<Command, String> {
    let language = Language::of(run.who).ok_or("a lock of this language")?;
    let interpreter = language.interpreter().ok_or("it is not installed")?;
    let workload = match run.case.workload {
        Workload::Pair => "pair",
        Workload::Pairs { .. } => "pairs",
        Workload::Sale => "sale",
        Workload::SaleInMemory => "sale-in-memory",
        Workload::Fairness => "fairness",
        _ => return Err("not measured in another language".to_owned()),
    };
    let size = if run.quick { "quick" } else { "full" };
    let mut command = language.command(&interpreter, language.program);
    command.args([workload, language.lock, &run.url, size]);
    command.args([run.part.to_string(), run.case.processes.to_string()]);
    // Failures are counted in the outcome; tracebacks of a thousand threads would hide the report.
    command.stderr(Stdio::null());
    Ok(command)
}
