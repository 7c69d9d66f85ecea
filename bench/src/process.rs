//! [`Usage`]: the resources that a process has used, from /proc. Zeros where there is no /proc.

use std::fs;
use std::iter::Sum;
use std::path::Path;

/// Totals since the process began, over its threads that still run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Time on a core.
    pub(crate) seconds: f64,
    /// How often it went to sleep and was woken.
    pub(crate) wakeups: f64,
    /// Resident bytes.
    pub(crate) memory: f64,
}

impl Usage {
    pub(crate) fn of(process: u32) -> Self {
        let folder = Path::new("/proc").join(process.to_string());
        let mut usage = Self::default();
        let threads = fs::read_dir(folder.join("task")).into_iter().flatten().flatten();
        for thread in threads {
            let schedule = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            let nanos: f64 = schedule.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default();
            usage.seconds += nanos / 1e9;
            usage.wakeups += field(&thread.path().join("status"), "voluntary_ctxt_switches:");
        }
        usage.memory = field(&folder.join("status"), "VmRSS:") * 1024.0;
        usage
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            seconds: self.seconds - before.seconds,
            wakeups: self.wakeups - before.wakeups,
            memory: self.memory - before.memory,
        }
    }
}

impl Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            seconds: sum.seconds + one.seconds,
            wakeups: sum.wakeups + one.wakeups,
            memory: sum.memory + one.memory,
        })
    }
}

fn field(file: &Path, name: &str) -> f64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
}
