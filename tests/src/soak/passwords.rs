//! [`Passwords`]: changes the password of the workers' user every few seconds.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_util::{Stream, stream};
use lock_runtime::redis::{BasicAuth, RedisResult, StreamingCredentialsProvider};
use redis::{Client, Connection};

/// How long a password is the newest. For half of this time the servers also accept the previous one.
const EVERY: Duration = Duration::from_secs(6);
/// How often to set the users again, because a server that restarts has forgotten them.
const TOLD_EVERY: Duration = Duration::from_millis(50);
const USER: &str = "worker";

/// Changes the password at all servers until it is dropped.
#[derive(Debug)]
pub struct Passwords {
    file: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Passwords {
    /// Starts to change the password; the newest one is in a file in this folder.
    #[must_use]
    pub fn of(servers: Vec<String>, folder: &Path) -> Self {
        let (file, is_over) = (folder.join("password"), Arc::<AtomicBool>::default());
        let mut servers: Vec<_> = servers.into_iter().map(|url| (url, None)).collect();
        tell(&mut servers, 0, Duration::ZERO);
        write(&file, 0);
        let thread = std::thread::spawn({
            let (file, is_over, start) = (file.clone(), Arc::clone(&is_over), Instant::now());
            move || {
                let mut written = 0;
                while !is_over.load(Ordering::SeqCst) {
                    let age = start.elapsed();
                    let number = age.as_secs() / EVERY.as_secs();
                    tell(&mut servers, number, age.saturating_sub(EVERY * u32::try_from(number).unwrap_or_default()));
                    if number > written {
                        write(&file, number);
                        written = number;
                    }
                    std::thread::sleep(TOLD_EVERY);
                }
            }
        });
        Self { file, is_over, thread: Some(thread) }
    }

    /// The file with the newest password.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }
}

impl Drop for Passwords {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sets the passwords on all servers that answer; `age` is that of the newest password.
fn tell(servers: &mut [(String, Option<Connection>)], number: u64, age: Duration) {
    let mut command = redis::cmd("ACL");
    command.arg(&["SETUSER", USER, "resetpass", "on", "~*", "&*", "+@all"]).arg(format!(">{number}"));
    if let Some(before) = number.checked_sub(1).filter(|_| age < EVERY / 2) {
        command.arg(format!(">{before}"));
    }
    for (url, connection) in servers {
        if connection.is_none() {
            *connection = connect(url).ok();
        }
        if let Some(told) = connection
            && command.query::<()>(told).is_err()
        {
            *connection = None;
        }
    }
}

/// A server may be stopped; then a later round sets its passwords.
fn connect(url: &str) -> RedisResult<Connection> {
    let connection = Client::open(url)?.get_connection_with_timeout(TOLD_EVERY)?;
    connection.set_read_timeout(Some(TOLD_EVERY))?;
    Ok(connection)
}

/// Writes the file atomically, so that no reader sees half a password.
fn write(file: &Path, number: u64) {
    let new = file.with_extension("new");
    std::fs::write(&new, number.to_string()).and_then(|()| std::fs::rename(&new, file)).expect("room for the password");
}

/// Provides the password in the file, and checks now and then whether it has changed.
#[derive(Debug)]
pub struct PasswordFile(pub PathBuf);

impl StreamingCredentialsProvider for PasswordFile {
    fn subscribe(&self) -> Pin<Box<dyn Stream<Item = RedisResult<BasicAuth>> + Send + 'static>> {
        let file = self.0.clone();
        Box::pin(stream::unfold(Duration::ZERO, move |pause| {
            let file = file.clone();
            async move {
                tokio::time::sleep(pause).await;
                let login = std::fs::read_to_string(file).map(|password| BasicAuth::new(USER.to_owned(), password));
                Some((login.map_err(Into::into), Duration::from_millis(500)))
            }
        }))
    }
}
