//! A small run of the load.

use std::process::Output;

use tokio::process::Command;

async fn load(options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_load"))
        .env_remove("DATABASE_URL")
        .env_remove("REDIS_URL")
        .args(["--stock", "30", "--customers", "20"])
        .args(options)
        .kill_on_drop(true)
        .output()
        .await
        .unwrap()
}

#[tokio::test]
async fn the_books_are_right_when_redis_forgets_and_an_instance_is_paused_and_killed() {
    let output = load(&[]).await;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("that instance was killed") && text.contains("Redis was restarted"), "{text}");
}

#[tokio::test]
async fn without_locks_too_much_is_sold() {
    let output = load(&["--no-lock", "--no-faults"]).await;
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("VIOLATION"), "{text}");
}
