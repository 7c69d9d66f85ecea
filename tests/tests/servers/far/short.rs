//! Leases and timeouts that are about as long as the round trip.

use std::time::{Duration, Instant};

use lock_runtime::LockError;
use tests::proxy::Distance;

use super::places::Far;

/// The lock is free, so no error may call it busy.
#[tokio::test]
async fn a_lease_that_is_over_before_its_reply_arrives_is_reported_and_not_as_busy() {
    let far = Far::one_server();
    let manager = far.manager().await;
    far.move_away(Distance::of_millis(9));
    for number in 0..20 {
        let lock = || manager.lock("short", &number).expire(Duration::from_millis(10)).renew(false);
        for timeout in [Duration::ZERO, Duration::from_millis(60)] {
            match lock().timeout(timeout).acquire().await {
                Ok(guard) => drop(guard),
                Err(error) => {
                    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
                    assert!(error.to_string().contains("10ms"), "{error}");
                }
            }
        }
    }
}

/// With a large allowance for clock drift a lease is over for its holder well before it expires on the server.
#[tokio::test]
async fn a_lease_used_up_by_the_drift_allowance_is_reported_and_not_as_busy() {
    const TIMEOUT: Duration = Duration::from_secs(6);
    // Over for the holder after 383 ms, and with the usual allowance after 691 ms.
    let far = Far::one_server();
    let builder = far.builder().max_clock_drift_ppm(450_000).command_timeout(Duration::from_secs(2));
    let manager = builder.connect().await.unwrap();
    far.move_away(Distance::of_millis(400));
    let start = Instant::now();
    let request = manager.lock("short", "k").expire(Duration::from_millis(700)).renew(false).timeout(TIMEOUT);
    let error = request.acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("700ms"), "{text}");
    // The error reports how long the first grant took, and not a later one that took twice as long.
    let took = text.split_once("after ").and_then(|(_, rest)| rest.split_once("ms")?.0.parse::<f64>().ok());
    assert!(took.is_some_and(|millis| millis < 691.0), "{text}");
    assert!(start.elapsed() < TIMEOUT / 2, "three grants must be enough to give up: {:?}", start.elapsed());
}

/// A single try waits for one reply, for at most the command timeout.
#[tokio::test]
async fn a_single_try_of_a_silent_server_takes_the_command_timeout() {
    let far = Far::one_server();
    let manager = far.builder().command_timeout(Duration::from_millis(300)).connect().await.unwrap();
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    far.servers[0].freeze();
    let start = Instant::now();
    let error = manager.lock("p", "k").try_acquire().await.unwrap_err();
    far.servers[0].thaw();
    let took = start.elapsed();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!((250..400).contains(&took.as_millis()), "{took:?}");
}
