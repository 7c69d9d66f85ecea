//! [`Instance`]: one instance of the shop, as a child process.

use std::process::Stdio;

use shop::StartFailure;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

/// What an instance prints before its address.
const LISTENING: &str = "listening on ";

/// An instance of the shop; killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Instance {
    child: Child,
    url: String,
    /// Its end tells the instance that this process is gone.
    _input: ChildStdin,
}

impl Instance {
    /// Starts this program again, as an instance, and waits until it listens.
    pub(crate) async fn start(redis: &str, database: &str, no_lock: bool) -> Result<Self, StartFailure> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--instance")
            // Not as options: URLs may contain passwords, and command lines are public.
            .env("REDIS_URL", redis)
            .env("DATABASE_URL", database)
            .env("PORT", "0")
            .env("RUST_LOG", "shop=info")
            .env("SHOP_NO_LOCK", if no_lock { "1" } else { "" })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().ok_or("an instance has no input")?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("an instance has no output")?).lines();
        let url = loop {
            let line = lines.next_line().await?.ok_or("an instance ended before it listened")?;
            if let Some((_, url)) = line.split_once(LISTENING) {
                break url.to_owned();
            }
        };
        // An instance whose output nobody reads would block on a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { child, url, _input: input })
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// Stops the instance for this long, as a host that is short of memory does, and lets it continue (SIGSTOP, SIGCONT). The
    /// instance does not notice it before it next reads a clock.
    #[cfg(unix)]
    pub(crate) async fn pause(&self, pause: std::time::Duration) -> Result<(), StartFailure> {
        use rustix::process::{Pid, Signal, kill_process};
        let id = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())).ok_or("the instance has ended")?;
        kill_process(id, Signal::STOP)?;
        tokio::time::sleep(pause).await;
        Ok(kill_process(id, Signal::CONT)?)
    }

    /// SIGKILL: the instance can't release anything.
    pub(crate) async fn kill(&mut self) -> Result<(), StartFailure> {
        Ok(self.child.kill().await?)
    }
}
