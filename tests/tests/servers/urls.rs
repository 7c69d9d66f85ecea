//! URLs: which ones parse, and the errors for those that don't.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager};
use tests::patience::NOISE;
use tests::server::Server;

async fn refused(url: &str) -> LockError {
    LockManager::connect(url).await.expect_err(url)
}

#[tokio::test]
async fn a_url_that_cannot_be_read_is_an_invalid_setting() {
    for url in [
        "",
        "redis",
        "127.0.0.1:6379",
        "http://127.0.0.1:6379",
        "redis://",
        "redis://[::1",
        "redis://127.0.0.1:port",
        "redis://127.0.0.1:99999",
        "redis://127.0.0.1:6379/database",
        "unix:",
    ] {
        let start = Instant::now();
        let error = refused(url).await;
        assert!(matches!(error, LockError::InvalidSetting { .. }), "{url:?}: {error:?}");
        assert!(error.to_string().contains("redis://"), "{error} does not show a valid URL");
        assert!(start.elapsed() < NOISE);
    }
}

#[tokio::test]
async fn meaningless_parts_of_a_url_are_refused_and_not_shown() {
    for (place, told) in [
        ("redis://canary@127.0.0.1:1", ":password@"),
        ("redis://canary:@127.0.0.1:1", ":password@"),
        ("redis://127.0.0.1:1?canary=y", "behind the `?`"),
        ("valkey://127.0.0.1:1/3#canary", "`#`"),
        ("unix:///nowhere?canary=y", "behind the `?`"),
    ] {
        let error = refused(place).await;
        assert!(matches!(error, LockError::InvalidSetting { .. }), "{place}: {error:?}");
        let text = format!("{error} {error:?}");
        assert!(text.contains(told) && !text.contains("canary"), "{place}: {text}");
    }
    let error = refused("redis://127.0.0.1:1?protocol=resp3").await;
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
}

#[tokio::test]
async fn a_path_without_a_socket_is_no_refused_connection() {
    let error = refused("unix:///nowhere/redis.sock").await.to_string();
    assert!(error.contains("`unixsocket`") && !error.contains("refused"), "{error}");
}

#[tokio::test]
async fn a_timeout_of_zero_is_named() {
    let builder = || LockManager::builder().url("redis://127.0.0.1:1");
    let zero = Duration::ZERO;
    for (builder, name) in
        [(builder().command_timeout(zero), "command_timeout"), (builder().connect_timeout(zero), "connect_timeout")]
    {
        let error = builder.connect().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidSetting { setting, .. } if setting == name), "{error:?}");
    }
}

#[tokio::test]
async fn a_builder_without_a_place_says_so() {
    let error = LockManager::builder().connect().await.unwrap_err();
    assert!(matches!(error, LockError::InvalidSetting { .. }), "{error:?}");
    assert!(error.to_string().contains("redis://"), "{error} does not show a valid URL");
}

#[tokio::test]
async fn a_memory_url_needs_no_server() {
    let manager = LockManager::connect("memory://").await.unwrap();
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_valkey_url_is_read_and_so_is_a_scheme_in_capitals() {
    let server = Server::start();
    for scheme in ["valkey://", "REDIS://", "Valkey://", "MEMORY://"] {
        let url = server.url().replace("redis://", scheme);
        let url = if scheme == "MEMORY://" { scheme } else { &url };
        let manager = LockManager::connect(url).await.unwrap();
        manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    }
    let error = refused("REDIS-SENTINEL://127.0.0.1:1/till").await;
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
}

#[tokio::test]
async fn a_password_that_has_to_be_escaped_is_not_taken_for_a_port_and_shown() {
    for scheme in ["redis", "rediss", "valkey", "redis-sentinel"] {
        for mark in ["#", "?", "/"] {
            for user in ["", "ada"] {
                let error = refused(&format!("{scheme}://{user}:4711{mark}x@127.0.0.1:1/till")).await;
                assert!(matches!(error, LockError::InvalidSetting { .. }), "{error:?}");
                let text = format!("{error} {error:?}");
                assert!(!text.contains("4711") && text.contains("%23"), "{text}");
            }
        }
    }
    // The path of a socket and the settings may contain it.
    let error = refused("unix:///nowhere/a@b?pass=a@b").await;
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
}
