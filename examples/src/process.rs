//! [`Process`]: another process of the same story, which communicates in lines.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::{Failure, Run};

/// The line that a child prints when it is ready.
const READY: &str = "ready";

/// A child process that runs this very program; killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// A child that waits on this notices by its end that the parent is gone.
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a child that holds the story's lock, and waits until it does.
    ///
    /// # Errors
    ///
    /// When it can't be started or ends early.
    pub async fn start_holder(run: &Run) -> Result<Self, Failure> {
        let mut holder = Self::start(run, &["--holder".to_owned()])?;
        holder.is_ready().await?;
        Ok(holder)
    }

    /// Starts a child that is this worker of the story, and waits until it is ready.
    ///
    /// # Errors
    ///
    /// When it can't be started or ends early.
    pub async fn start_worker(run: &Run, worker: u32) -> Result<Self, Failure> {
        let mut process = Self::start(run, &["--worker".to_owned(), worker.to_string()])?;
        process.is_ready().await?;
        Ok(process)
    }

    /// Starts this program again, with the same options and some more.
    pub(crate) fn start(run: &Run, options: &[String]) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .args(["--namespace", run.namespace()])
            .args(options)
            // Not as an option: the URL may contain a password, and command lines are public.
            .envs(run.redis().map(|url| ("REDIS_URL", url)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().ok_or("a child process has no input")?;
        let output = child.stdout.take().ok_or("a child process has no output")?;
        Ok(Self { child, input, output: BufReader::new(output).lines() })
    }

    /// Waits until the child is ready.
    pub(crate) async fn is_ready(&mut self) -> Result<(), Failure> {
        match self.line().await? {
            Some(line) if line == READY => Ok(()),
            _ => Err("a child process ended before it was ready".into()),
        }
    }

    /// Lets a child that is ready begin.
    ///
    /// # Errors
    ///
    /// When it has ended early.
    pub async fn go(&mut self) -> Result<(), Failure> {
        Ok(self.input.write_all(b"go\n").await?)
    }

    /// The child's next line; `None` when it has ended.
    ///
    /// # Errors
    ///
    /// When it prints something that is not text.
    pub async fn line(&mut self) -> Result<Option<String>, Failure> {
        Ok(self.output.next_line().await?)
    }

    /// Kills the child like a crash: SIGKILL, which it can't notice before.
    ///
    /// # Errors
    ///
    /// When it is gone already.
    pub async fn kill(mut self) -> Result<(), Failure> {
        Ok(self.child.kill().await?)
    }

    /// In a child: reports that it is ready, and waits until it may begin. The process ends when its parent is gone.
    ///
    /// # Errors
    ///
    /// When it can't read from the parent.
    pub async fn wait_for_parent() -> Result<(), Failure> {
        println!("{READY}");
        let mut order = String::new();
        if BufReader::new(tokio::io::stdin()).read_line(&mut order).await? == 0 {
            return Err("the parent process is gone".into());
        }
        Ok(())
    }
}
