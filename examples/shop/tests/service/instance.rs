//! [`Instance`]: the program `shop`, as a child process of a test.

use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A running service; killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Instance {
    child: Child,
    pub(crate) url: String,
}

impl Instance {
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_shop"))
            .env_remove("DATABASE_URL")
            .env_remove("REDIS_URL")
            .env("RUST_LOG", "info")
            .env("PORT", "0")
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = loop {
            let line = lines.next_line().await.unwrap().expect("the service listens before it ends");
            if let Some((_, url)) = line.split_once("listening on ") {
                break url.to_owned();
            }
        };
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, url }
    }

    pub(crate) fn terminate(&self) {
        let process = Pid::from_raw(self.child.id().unwrap().cast_signed()).unwrap();
        kill_process(process, Signal::TERM).unwrap();
    }

    pub(crate) async fn end(mut self) -> ExitStatus {
        self.child.wait().await.unwrap()
    }

    /// What `/metrics` shows of a metric.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let text = reqwest::get(format!("{}/metrics", self.url)).await.unwrap().text().await.unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0.0, |value| value.trim().parse().unwrap())
    }
}
