//! [`race`]: many tasks released at once, in this process or spread over several.

use std::future::Future;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Barrier, oneshot};

use crate::{Failure, Options, Outcome, Process, Run, Tally};

/// Runs all tasks at once and counts their outcomes: here, or in `--processes` worker processes.
///
/// # Errors
///
/// When worker processes can't be started.
pub async fn race<F, T>(run: &Run, options: &Options, task: F) -> Result<Tally, Failure>
where
    F: Fn(u32) -> T,
    T: Future<Output = Outcome> + Send + 'static,
{
    if options.processes > 1 {
        return Workers::start(run, options).await?.go().await?.finish().await;
    }
    let (gate, outcomes) = line_up(0..options.tasks, task);
    let began = Instant::now();
    gate.wait().await;
    Ok(collect(outcomes, began, options.tasks).await)
}

/// Runs a worker's part of the tasks and prints their outcomes, for the parent to count.
///
/// # Errors
///
/// When the parent is gone.
pub async fn take_part<F, T>(part: Range<u32>, task: F) -> Result<(), Failure>
where
    F: Fn(u32) -> T,
    T: Future<Output = Outcome> + Send + 'static,
{
    let (gate, mut outcomes) = line_up(part, task);
    Process::wait_for_parent().await?;
    gate.wait().await;
    while let Some(outcome) = outcomes.recv().await {
        writeln!(std::io::stdout(), "{outcome}")?;
    }
    Ok(())
}

/// The worker processes of a run, ready to begin.
#[derive(Debug)]
pub struct Workers {
    processes: Vec<Process>,
    tasks: u32,
}

impl Workers {
    /// Starts them and waits until all tasks are at their barriers.
    ///
    /// # Errors
    ///
    /// When one can't be started or ends early.
    pub async fn start(run: &Run, options: &Options) -> Result<Self, Failure> {
        let mut processes = (0..options.processes)
            .map(|worker| Process::start(run, &["--worker".to_owned(), worker.to_string()]))
            .collect::<Result<Vec<_>, _>>()?;
        for process in &mut processes {
            process.is_ready().await?;
        }
        Ok(Self { processes, tasks: options.tasks })
    }

    /// Lets all of them begin.
    ///
    /// # Errors
    ///
    /// When one has ended early.
    pub async fn go(mut self) -> Result<Running, Failure> {
        let began = Instant::now();
        for process in &mut self.processes {
            process.go().await?;
        }
        let (sender, outcomes) = unbounded_channel();
        for process in self.processes {
            tokio::spawn(listen(process, sender.clone()));
        }
        let (report, tally) = oneshot::channel();
        let tasks = self.tasks;
        drop(sender);
        tokio::spawn(async move { report.send(collect(outcomes, began, tasks).await) });
        Ok(Running { began, tally })
    }
}

/// Worker processes whose tasks are running.
#[derive(Debug)]
pub struct Running {
    began: Instant,
    tally: oneshot::Receiver<Tally>,
}

impl Running {
    /// The time since they began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits for all of them, and counts.
    ///
    /// # Errors
    ///
    /// When the counting failed.
    pub async fn finish(self) -> Result<Tally, Failure> {
        Ok(self.tally.await?)
    }
}

/// Spawns the tasks, all waiting at one barrier; the last to arrive lets them go.
fn line_up<F, T>(tasks: Range<u32>, task: F) -> (Arc<Barrier>, UnboundedReceiver<Outcome>)
where
    F: Fn(u32) -> T,
    T: Future<Output = Outcome> + Send + 'static,
{
    let gate = Arc::new(Barrier::new(tasks.len() + 1));
    let (sender, outcomes) = unbounded_channel();
    for number in tasks {
        let (gate, sender, task) = (gate.clone(), sender.clone(), task(number));
        tokio::spawn(async move {
            gate.wait().await;
            // Nobody listens if the race was given up.
            sender.send(task.await).ok();
        });
    }
    (gate, outcomes)
}

/// Passes on what a worker prints. A worker that dies or prints nonsense leaves tasks without an answer: `Tally::close` counts them.
async fn listen(mut worker: Process, outcomes: UnboundedSender<Outcome>) {
    while let Ok(Some(line)) = worker.line().await {
        let outcome = line.parse().unwrap_or_else(|error: Failure| Outcome::Failed(error.to_string()));
        if outcomes.send(outcome).is_err() {
            return;
        }
    }
}

async fn collect(mut outcomes: UnboundedReceiver<Outcome>, began: Instant, tasks: u32) -> Tally {
    let progress = ProgressBar::new(tasks.into());
    if let Ok(style) = ProgressStyle::with_template("  {bar:40} {pos}/{len} tasks, {elapsed}") {
        progress.set_style(style);
    }
    progress.enable_steady_tick(Duration::from_millis(100));

    let mut tally = Tally::default();
    while let Some(outcome) = outcomes.recv().await {
        tally.count(outcome);
        progress.inc(1);
    }
    tally.took = began.elapsed();
    tally.close(tasks);
    progress.finish_and_clear();
    tally
}
