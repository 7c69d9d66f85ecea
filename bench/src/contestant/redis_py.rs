//! redis-py, in a Python process that talks like a child of the benchmark.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::Who;
use crate::child::Run;
use crate::workload::Workload;

const PROGRAM: &str = include_str!("redis_py.py");

/// The Python with redis-py: that of `BENCH_PYTHON`, else of `.venv`; `None` when it is not there.
pub(crate) fn python() -> Option<PathBuf> {
    let candidates = [std::env::var_os("BENCH_PYTHON").map(PathBuf::from), Some(".venv/bin/python".into())];
    candidates.into_iter().flatten().find(|python| {
        let import = Command::new(python).args(["-c", "import redis"]).stderr(Stdio::null()).status();
        import.is_ok_and(|status| status.success())
    })
}

/// The process for `run`.
pub(crate) fn command(run: &Run) -> Result<Command, String> {
    let python = python().ok_or("no Python with redis-py")?;
    let workload = match run.case.workload {
        Workload::Pair => "pair",
        Workload::Pairs { .. } => "pairs",
        Workload::Sale => "sale",
        Workload::SaleInMemory => "sale-in-memory",
        Workload::Fairness => "fairness",
        _ => return Err("not measured with redis-py".to_owned()),
    };
    let tuned = if run.who == Who::RedisPyTuned { "tuned" } else { "default" };
    let size = if run.quick { "quick" } else { "full" };
    let mut command = Command::new(python);
    command.args(["-c", PROGRAM, workload, tuned, &run.url, size]);
    command.args([run.part.to_string(), run.case.processes.to_string()]);
    // Failures are counted in the outcome; tracebacks of a thousand threads would hide the report.
    command.stderr(Stdio::null());
    Ok(command)
}
