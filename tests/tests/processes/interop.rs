//! A client in another language, which knows nothing of this library, excludes it and is excluded by it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager};
use tests::patience::{NOISE, eventually};
use tests::server::Server;

const LONG: Duration = Duration::from_secs(10);

/// A redis-py process that runs `tests/interop.py`.
struct Python {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Python {
    /// Uses the interpreter that `LOCK_TEST_PYTHON` names, else the one in `.venv`, which `test.sh` makes.
    fn start(server: &Server, name: &str, what: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let python =
            std::env::var_os("LOCK_TEST_PYTHON").map_or_else(|| folder.join("../.venv/bin/python"), PathBuf::from);
        let mut process = Command::new(&python)
            .arg(folder.join("interop.py"))
            .args([&server.url(), name, what])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}; ./test.sh makes it", python.display()));
        Self { input: process.stdin.take().unwrap(), output: BufReader::new(process.stdout.take().unwrap()), process }
    }

    fn says(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn go_on(&mut self) {
        self.input.write_all(b"\n").unwrap();
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn a_lock_held_here_is_busy_there() {
    let server = Server::start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    let guard = manager.lock("shop", &("item", 7)).acquire().await.unwrap();
    assert_eq!(Python::start(&server, "shop:item:7", "try").says(), "busy");
    guard.release().await.unwrap();
    assert_eq!(Python::start(&server, "shop:item:7", "try").says(), "held");
}

#[tokio::test]
async fn a_lock_released_here_goes_to_the_one_that_waits_there() {
    let server = Server::start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    let guard = manager.lock("shop", "item").acquire().await.unwrap();
    let mut python = Python::start(&server, "shop:item", "wait");
    assert_eq!(python.says(), "waiting");
    guard.release().await.unwrap();
    assert_eq!(python.says(), "held");
    assert_eq!(python.says(), "released");
    assert_eq!(server.owner("shop:item"), None);
}

#[tokio::test]
async fn a_lock_held_there_is_busy_here_and_its_value_left_alone() {
    let server = Server::start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    let mut python = Python::start(&server, "shop:item", "hold");
    assert_eq!(python.says(), "held");
    let token = server.owner("shop:item").unwrap();
    assert!(manager.lock("shop", "item").try_acquire().await.unwrap().is_none());
    let request = manager.lock("shop", "item").timeout(Duration::from_millis(100));
    let error = request.acquire().await.unwrap_err();
    // Another client's token has no label: the error names no holder, and does not show the token.
    assert!(matches!(&error, LockError::Timeout { holder: None, .. }), "{error:?}");
    assert!(!error.to_string().contains(&token));
    assert_eq!(server.owner("shop:item"), Some(token));
    python.go_on();
    assert_eq!(python.says(), "released");
    assert!(manager.lock("shop", "item").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_lock_released_there_goes_to_the_one_that_waits_here() {
    let server = Server::start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    let mut python = Python::start(&server, "shop:item", "hold");
    assert_eq!(python.says(), "held");
    let waiter = tokio::spawn(async move { manager.lock("shop", "item").timeout(LONG).acquire().await });
    // Wait until the first ask was refused.
    eventually("the waiter queues", LONG, || server.keys().contains_key("{shop:item}:queue")).await;
    python.go_on();
    assert_eq!(python.says(), "released");
    let released = Instant::now();
    let guard = waiter.await.unwrap().unwrap();
    // That client sends no notification, so the waiter gets the lock with its next ask, within a second.
    assert!(released.elapsed() < Duration::from_secs(1) + NOISE, "{:?}", released.elapsed());
    assert_eq!(Python::start(&server, "shop:item", "try").says(), "busy");
    guard.release().await.unwrap();
}
