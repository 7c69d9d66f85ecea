//! Bad input is reported as early as possible, and never by a panic.

use std::error::Error as _;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use lock_runtime::{Builder, LockError, LockManager, MAX_NAME_BYTES};
use tests::patience::NOISE;
use tests::resp;
use tests::server::{Server, free_port};

const CANARY: &str = "canary-7f3a";

/// The text of an error and of all its causes.
fn everything(error: &LockError) -> String {
    let mut text = format!("{error}\n{error:?}\n{error:#?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, "\n{error}\n{error:?}");
        cause = error.source();
    }
    text
}

async fn refused(url: &str) -> LockError {
    LockManager::connect(url).await.expect_err(url)
}

#[tokio::test]
async fn a_missing_password_and_a_wrong_one_have_different_errors() {
    let server = Server::with_password("right");
    let none = refused(&format!("redis://{}", server.address())).await.to_string();
    assert!(none.contains("wants a password") && none.contains("redis://:password@host"), "{none}");
    let wrong = refused(&server.url().replace("right", "wrong")).await.to_string();
    assert!(wrong.contains("refused the user name or password"), "{wrong}");
}

#[tokio::test]
async fn a_server_that_worked_and_was_killed_is_not_suspected_of_tls() {
    let mut server = Server::start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    // The proxy in front of it accepts connections and closes them, like any proxy whose server is down.
    let address = server.address();
    server.kill();
    let gone = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || gone.incoming().for_each(drop));
    let error = manager.lock("p", "k").timeout(Duration::from_millis(300)).acquire().await.unwrap_err();
    let text = everything(&error);
    assert!(matches!(error, LockError::Backend { .. }) && !text.contains("TLS"), "{text}");
    let error = refused(&server.url()).await;
    assert!(error.to_string().contains("TLS"), "{error}");
}

#[tokio::test]
async fn no_text_ever_shows_a_password() {
    let server = Server::with_password("right");
    let port = free_port();
    let mut errors = Vec::new();
    for url in [
        // A wrong password, which the server refuses; a right one, on a port where nothing listens; and URLs that don't parse.
        server.url().replace("right", CANARY),
        format!("redis://somebody:{CANARY}@{}", server.address()),
        format!("redis://:{CANARY}@127.0.0.1:{port}"),
        format!("http://:{CANARY}@127.0.0.1"),
        format!("redis://:{CANARY}@127.0.0.1:port"),
        format!("redis://:{CANARY}@[::1"),
        format!("{CANARY}://127.0.0.1").replace("canary-", "c"),
        format!("rediss://:{CANARY}@127.0.0.1:{port}"),
        format!("unix:///nowhere?pass={CANARY}"),
    ] {
        errors.push(refused(&url).await);
    }
    for error in &errors {
        let text = everything(error);
        assert!(!text.contains(CANARY), "{text}");
    }
    assert!(matches!(errors[0], LockError::Connect { .. }), "{:?}", errors[0]);
    assert!(errors[0].to_string().contains(&server.address()), "{}", errors[0]);

    let secret = Server::with_password(CANARY);
    let manager = LockManager::connect(&secret.url()).await.unwrap();
    assert!(!format!("{manager:?}").contains(CANARY));
    let request = manager.lock("p", "k");
    assert!(!format!("{request:?}").contains(CANARY));
    let guard = request.acquire().await.unwrap();
    assert!(!format!("{guard:?}").contains(CANARY));
    secret.freeze();
    let error = manager.lock("p", "other").timeout(Duration::from_millis(100)).acquire().await;
    secret.thaw();
    let text = everything(&error.unwrap_err());
    assert!(!text.contains(CANARY), "{text}");
}

#[test]
fn a_builder_does_not_show_the_password_of_its_url() {
    for url in [format!("redis://:{CANARY}@127.0.0.1"), format!("redis://somebody:{CANARY}@127.0.0.1/{CANARY}")] {
        let text = format!("{:?}", LockManager::builder().url(&url));
        assert!(!text.contains(CANARY), "{text}");
    }
}

#[tokio::test]
async fn no_text_shows_an_owner_token() {
    let server = Server::start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    let guard = manager.lock("p", "k").fenced(true).acquire().await.unwrap();
    let token = server.owner("p:k").unwrap();
    let secret = token.split('.').next().unwrap();
    let error = manager.lock("p", "k").timeout(Duration::ZERO).acquire().await.unwrap_err();
    for text in [everything(&error), format!("{guard:?}"), format!("{manager:?}")] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[tokio::test]
async fn a_refused_connection_is_reported_at_once() {
    let start = Instant::now();
    let error = refused(&format!("redis://127.0.0.1:{}", free_port())).await;
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(2) + Duration::from_millis(100));
    assert!(error.source().is_some() || error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn a_server_that_never_answers_is_reported_within_the_connect_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let timeout = Duration::from_millis(300);
    let start = Instant::now();
    let error = LockManager::builder().url(&url).connect_timeout(timeout).connect().await.unwrap_err();
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
    assert!(start.elapsed() < timeout + Duration::from_millis(100) + NOISE, "{:?}", start.elapsed());
}

/// A server that replies to each command with the result of `answer`.
fn pretend(answer: fn(&[String]) -> String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let mut chunk = [0; 4096];
                while let Ok(count) = stream.read(&mut chunk) {
                    if count == 0 {
                        return;
                    }
                    bytes.extend_from_slice(&chunk[..count]);
                    while let Some(end) = resp::length(&bytes) {
                        let words = resp::words(&bytes[..end]);
                        bytes.drain(..end);
                        if stream.write_all(answer(&words).as_bytes()).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn an_old_server_is_refused_by_name_of_its_version_and_of_what_it_lacks() {
    let url = pretend(|words| match words[0].as_str() {
        "HELLO" => {
            "%3\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n6.2.14\r\n$5\r\nproto\r\n:3\r\n".to_owned()
        }
        // What Redis 6.2 replies.
        "PEXPIRE" if words.len() > 3 => "-ERR wrong number of arguments for 'pexpire' command\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    });
    let error = refused(&url).await;
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
    let text = everything(&error);
    assert!(text.contains("redis 6.2.14 lacks `PEXPIRE … GT`") && text.contains("7.0"), "{text}");
}

#[tokio::test]
async fn a_server_with_no_room_for_another_client_says_so() {
    let server = Server::start();
    let known = LockManager::connect(&server.url()).await.unwrap();
    known.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    server.tell("CONFIG SET maxclients 5");
    let crowd: Vec<_> = (0..8).map(|_| std::net::TcpStream::connect(server.address()).unwrap()).collect();
    for url in [server.url(), format!("{}/3", server.url())] {
        let text = everything(&refused(&url).await);
        assert!(text.contains("no room for another client") && text.contains("maxclients"), "{url}: {text}");
        assert!(!text.contains("TLS"), "{url}: {text}");
    }
    drop((known, crowd));
}

#[tokio::test]
async fn a_server_without_the_new_protocol_is_refused() {
    let url = pretend(|words| match words[0].as_str() {
        "HELLO" => "-ERR unknown command `HELLO`\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    });
    let start = Instant::now();
    let error = refused(&url).await;
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn something_that_is_no_redis_is_refused() {
    let url = pretend(|_| "HTTP/1.1 400 Bad Request\r\n\r\n".to_owned());
    let error = refused(&url).await;
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
}

#[tokio::test]
async fn a_key_that_names_nothing_is_refused_before_anything_runs() {
    let manager = LockManager::in_memory();
    let ran = std::cell::Cell::new(false);
    let body = || async { ran.set(true) };
    for outcome in [
        manager.lock("p", "").run(body()).await,
        manager.lock("p", &None::<u64>).run(body()).await,
        manager.lock("p", &("a", "")).run(body()).await,
        manager.lock("p", &"x".repeat(1024)).run(body()).await,
        // Short as written, and too long when escaped.
        manager.lock("p", &":".repeat(400)).run(body()).await,
        manager.lock("p", &"x".repeat(10_000_000)).run(body()).await,
        manager.lock("", "k").run(body()).await,
        manager.lock("a b", "k").run(body()).await,
        manager.lock("a{b", "k").run(body()).await,
        manager.lock("a}b", "k").run(body()).await,
        manager.lock("a\nb", "k").run(body()).await,
    ] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, LockError::InvalidKey { .. }), "{error:?}");
        assert!(error.to_string().len() < 400, "an error as long as the key");
    }
    assert!(!ran.get());
    let error = manager.lock("p", "").try_acquire().await.unwrap_err();
    assert!(matches!(error, LockError::InvalidKey { .. }));
}

#[tokio::test]
async fn the_limit_of_a_name_counts_its_namespace() {
    let manager = LockManager::builder().namespace(&"n".repeat(1000)).in_memory();
    let error = manager.lock("p", &"x".repeat(100)).acquire().await.unwrap_err();
    assert!(matches!(error, LockError::InvalidKey { .. }), "{error:?}");
}

#[tokio::test]
async fn a_namespace_that_leaves_no_room_for_a_name_is_refused() {
    for (length, is_refused) in [(MAX_NAME_BYTES - 4, false), (MAX_NAME_BYTES - 3, true)] {
        let manager = LockManager::builder().namespace(&"n".repeat(length)).in_memory();
        let had = manager.lock("p", "k").acquire().await;
        assert_eq!(matches!(had, Err(LockError::InvalidSetting { .. })), is_refused, "{length}: {had:?}");
        assert_eq!(had.is_ok(), !is_refused, "{length}");
    }
}

#[tokio::test]
async fn a_lease_out_of_bounds_is_refused_before_anything_is_sent() {
    let manager = LockManager::in_memory();
    let year = Duration::from_hours(24 * 366);
    for lease in [Duration::ZERO, Duration::from_millis(9), year * 2, Duration::MAX] {
        let error = manager.lock("p", "k").expire(lease).acquire().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidSetting { .. }), "{lease:?}: {error:?}");
        let error = manager.lock("p", "k").expire(lease).run(async {}).await.unwrap_err();
        assert!(matches!(error, LockError::InvalidSetting { .. }), "{lease:?}: {error:?}");
    }
    for lease in [Duration::from_millis(10), Duration::from_hours(24 * 365)] {
        drop(manager.lock("p", "k").expire(lease).acquire().await.unwrap());
    }
}

#[tokio::test]
async fn the_longest_timeout_is_a_timeout_like_any_other() {
    for manager in [LockManager::in_memory(), LockManager::connect("memory://").await.unwrap()] {
        let guard = manager.lock("p", "k").timeout(Duration::MAX).acquire().await.unwrap();
        let waiter = manager.lock("p", "k").timeout(Duration::MAX).acquire();
        assert!(tokio::time::timeout(Duration::from_millis(50), waiter).await.is_err());
        drop(guard);
    }
    let server = Server::start();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    let other = LockManager::connect(&server.url()).await.unwrap();
    let guard = manager.lock("p", "k").timeout(Duration::MAX).acquire().await.unwrap();
    let waiter = other.lock("p", "k").timeout(Duration::MAX).acquire();
    let (freed, next) = tokio::join!(guard.release(), waiter);
    freed.unwrap();
    next.unwrap().release().await.unwrap();
}

type Mistake = fn(Builder) -> Builder;

const MISTAKES: [(&str, Mistake); 13] = [
    ("empty namespace", |builder| builder.namespace("")),
    ("namespace with a brace", |builder| builder.namespace("a{b")),
    ("namespace with a blank", |builder| builder.namespace("a b")),
    ("namespace with a newline", |builder| builder.namespace("a\nb")),
    ("no expire", |builder| builder.default_expire(Duration::ZERO)),
    ("endless expire", |builder| builder.default_expire(Duration::MAX)),
    ("no command timeout", |builder| builder.command_timeout(Duration::ZERO)),
    ("no connect timeout", |builder| builder.connect_timeout(Duration::ZERO)),
    ("endless grace", |builder| builder.grace(Duration::MAX)),
    ("no allowance for clocks that drift", |builder| builder.max_clock_drift_ppm(0)),
    ("an allowance that leaves nothing", |builder| builder.max_clock_drift_ppm(500_001)),
    ("no waiters", |builder| builder.max_waiters(0)),
    ("no waiters for a key", |builder| builder.max_waiters_per_key(0)),
];

#[tokio::test]
async fn a_setting_out_of_bounds_is_refused_by_connect() {
    let server = Server::start();
    for (what, mistake) in MISTAKES {
        let error = mistake(LockManager::builder().url(&server.url())).connect().await.expect_err(what);
        assert!(matches!(error, LockError::InvalidSetting { .. }), "{what}: {error:?}");
    }
}

/// In memory `connect` is not called.
#[tokio::test]
async fn a_setting_out_of_bounds_is_refused_by_the_first_request_in_memory() {
    for (what, mistake) in MISTAKES {
        let manager = mistake(LockManager::builder()).in_memory();
        let error = manager.lock("p", "k").acquire().await.expect_err(what);
        assert!(matches!(error, LockError::InvalidSetting { .. }), "{what}: {error:?}");
    }
}

#[tokio::test]
async fn any_label_is_reported_unchanged() {
    let server = Server::start();
    for label in ["", "a b", "a@b.1", "a|b%7C", "line\nbreak", "ü", "wait for it 1 2"] {
        let manager = LockManager::builder().url(&server.url()).label(label).connect().await.unwrap();
        let other = LockManager::connect(&server.url()).await.unwrap();
        let guard = manager.lock("p", "k").acquire().await.unwrap();
        let error = other.lock("p", "k").timeout(Duration::from_millis(20)).acquire().await.unwrap_err();
        let LockError::Timeout { holder, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(holder.as_deref(), Some(label));
        // A hand-off works with such a label, too.
        let (released, waited) = tokio::join!(
            async {
                tokio::time::sleep(Duration::from_millis(30)).await;
                guard.release().await
            },
            other.lock("p", "k").acquire()
        );
        released.unwrap();
        waited.unwrap().release().await.unwrap();
    }
}

#[test]
fn a_call_without_a_runtime_says_so() {
    let told = LockManager::connect("redis://127.0.0.1:1").now_or_never().unwrap().unwrap_err();
    assert!(told.to_string().contains("inside of a tokio runtime"), "{told}");
    assert!(LockManager::connect("memory://").now_or_never().unwrap().is_ok());
}
