//! A process that shares locks with another process, perhaps of another version: `neighbour work URL LABEL SECONDS`,
//! `neighbour give URL`, `neighbour adopt URL TICKET`.
//!
//! It is also built against older versions of the library, so it depends on nothing but the library, tokio and std.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_runtime::{LockError, LockManager, LockRequest, LockTicket};

/// How long a task waits. Only a starved task waits this long.
const TIMEOUT: Duration = Duration::from_secs(5);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *words.as_slice() {
        ["work", url, label, seconds] => {
            let locks = LockManager::builder().url(url).label(label).connect().await?;
            let end = SystemTime::now() + Duration::from_secs(seconds.parse()?);
            let kinds = ["alone", "alone", "read", "read", "write", "permit", "permit"];
            let tasks = kinds.map(|kind| tokio::spawn(work(locks.clone(), kind, end)));
            for task in tasks {
                task.await?;
            }
            locks.shutdown().await;
        }
        ["give", url] => {
            let guard = LockManager::connect(url).await?.lock("gift", "g").timeout(TIMEOUT).acquire().await?;
            println!("{}", guard.into_ticket(Duration::from_mins(1)).await?);
        }
        ["adopt", url, ticket] => {
            let ticket: LockTicket = ticket.parse()?;
            LockManager::connect(url).await?.adopt(ticket).await?.release().await?;
            println!("adopted");
        }
        _ => return Err("usage: neighbour work|give|adopt …".into()),
    }
    Ok(())
}

/// Holds the lock of this kind again and again, and prints when.
async fn work(locks: LockManager, kind: &'static str, end: SystemTime) {
    while SystemTime::now() < end {
        if let Err(error) = hold(request(&locks, kind), kind).await {
            println!("failed {kind} {error}");
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn request(locks: &LockManager, kind: &str) -> LockRequest {
    match kind {
        "alone" => locks.lock("alone", "k").fenced(true),
        "read" => locks.lock("shared", "k").read(),
        "write" => locks.lock("shared", "k"),
        _ => locks.lock("permit", "k").permits(2),
    }
}

async fn hold(request: LockRequest, kind: &str) -> Result<(), LockError> {
    let guard = request.timeout(TIMEOUT).acquire().await?;
    let from = now();
    tokio::time::sleep(Duration::from_millis(2)).await;
    let (until, fence) = (now(), guard.fencing_token().map_or(0, u64::from));
    // Otherwise the lock was lost before this point, and the hold ended earlier.
    if guard.is_valid() {
        println!("{kind} {from} {until} {fence}");
    }
    guard.release().await
}

/// Nanoseconds on a clock that all processes share.
fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}
