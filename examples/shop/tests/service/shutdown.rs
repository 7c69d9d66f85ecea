//! The end of the service, and the orchestrator's checks before it.

use std::time::Duration;

use examples::Server;
use lock_runtime::LockManager;
use tokio::time::{sleep, timeout};

use crate::instance::Instance;

/// All of these customers wait for one lock. If the locks were shut down first, all but one of them would get 503.
#[tokio::test]
async fn requests_accepted_before_sigterm_are_served() {
    let server = Server::start().await.unwrap();
    let shop = Instance::start(&[("REDIS_URL", server.url()), ("SHOP_WORK_MS", "100")]).await;
    // A viewer of the page does not delay the end.
    let viewer = reqwest::get(format!("{}/events", shop.url)).await.unwrap();
    let customers: Vec<_> =
        (0..8).map(|_| tokio::spawn(reqwest::Client::new().post(format!("{}/items/1/buy", shop.url)).send())).collect();
    while shop.metric("cache_lock_waiters{prefix=\"sale\"}").await < 7.0 {
        sleep(Duration::from_millis(5)).await;
    }
    shop.terminate();
    for customer in customers {
        assert_eq!(customer.await.unwrap().unwrap().status(), 201);
    }
    let end = timeout(Duration::from_secs(10), shop.end()).await.expect("the service ends");
    assert!(end.success(), "{end}");
    drop(viewer);
    let locks = LockManager::builder().url(server.url()).namespace("shop").connect().await.unwrap();
    assert!(!locks.is_locked("sale", &1).await.unwrap());
}

#[tokio::test]
async fn the_service_starts_without_redis_and_is_ready_when_redis_is_there() {
    let mut server = Server::start().await.unwrap();
    let url = server.url().to_owned();
    server.kill().await.unwrap();
    let shop = Instance::start(&[("REDIS_URL", &url)]).await;
    let status = async |path: &str| reqwest::get(format!("{}{path}", shop.url)).await.unwrap().status().as_u16();
    assert_eq!(status("/ready").await, 503);
    assert_eq!(status("/healthz").await, 200);
    let sale = reqwest::Client::new().post(format!("{}/items/1/buy", shop.url)).send().await.unwrap();
    assert_eq!(sale.status(), 503);

    for is_there in [true, false, true] {
        if is_there {
            server.restart_empty().await.unwrap();
        } else {
            server.kill().await.unwrap();
        }
        let wanted = if is_there { 200 } else { 503 };
        let change = async {
            while status("/ready").await != wanted {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(10), change).await.expect("`/ready` follows the server");
    }
}
