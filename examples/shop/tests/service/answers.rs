//! The answers to callers when a lock can't be acquired, by the routes themselves, without a server.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use lock_runtime::testing::{TestLocks, errors};
use lock_runtime::{LockError, LockManager};
use metrics_exporter_prometheus::PrometheusBuilder;
use shop::{App, Database, LockProblem, Settings, Shop, router};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// The routes over these locks. The shop's work between read and write takes this long.
async fn routes(locks: &LockManager, work: Duration) -> Router {
    let settings = Settings { work, is_locked: true, ..Settings::from_env().unwrap() };
    let database = Database::open(None, 5).await.unwrap();
    let shop = Arc::new(Shop::new(locks.clone(), database, &settings));
    let metrics = PrometheusBuilder::new().build_recorder().handle();
    router(App::new(shop, metrics, CancellationToken::new()))
}

/// The status, the seconds of `Retry-After`, and the code of the problem.
type Answer = (StatusCode, Option<u64>, String);

async fn ask(routes: &Router, method: Method, path: &str, body: &'static str) -> Answer {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let answer = routes.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
    let (head, body) = answer.into_parts();
    let retry_after = head.headers.get("retry-after").map(|seconds| seconds.to_str().unwrap().parse().unwrap());
    let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    if head.status.is_success() {
        return (head.status, retry_after, String::new());
    }
    assert_eq!(head.headers["content-type"], "application/problem+json");
    for secret in ["sale", "payment", "default_address", "another process", "memory"] {
        assert!(!text.contains(secret), "a caller reads `{secret}` in {text}");
    }
    let problem: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(problem["status"], head.status.as_u16());
    (head.status, retry_after, problem["code"].as_str().unwrap().to_owned())
}

async fn buy(routes: &Router) -> Answer {
    ask(routes, Method::POST, "/items/1/buy", "").await
}

fn answer(status: StatusCode, retry_after: Option<u64>, code: &str) -> Answer {
    (status, retry_after, code.to_owned())
}

#[tokio::test]
async fn a_busy_lock_is_a_conflict_or_a_crowd() {
    let test = TestLocks::new();
    let routes = routes(test.manager(), Duration::ZERO).await;
    let _address = test.hold_elsewhere("default_address", &7).await;
    let _item = test.hold_elsewhere("sale", &1).await;
    // Both only wait for their locks: seconds pass at once.
    tokio::time::pause();
    let address = ask(&routes, Method::PUT, "/users/7/default-address", r#"{"address":"1 Main Street"}"#).await;
    assert_eq!((address.0, address.2.as_str()), (StatusCode::CONFLICT, "busy"));
    assert!(address.1.is_some_and(|seconds| (1..=30).contains(&seconds)), "{address:?}");
    let item = buy(&routes).await;
    assert_eq!((item.0, item.2.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "crowded"));
    assert!(item.1.is_some_and(|seconds| (1..=30).contains(&seconds)), "{item:?}");
}

#[tokio::test]
async fn a_server_that_is_away_is_503_and_not_ready() {
    let test = TestLocks::new();
    let routes = routes(test.manager(), Duration::ZERO).await;
    assert_eq!(buy(&routes).await.0, StatusCode::CREATED);
    test.go_down();
    tokio::time::pause();
    assert_eq!(buy(&routes).await, answer(StatusCode::SERVICE_UNAVAILABLE, Some(1), "unavailable"));
    tokio::time::resume();
    test.come_up();
    assert_eq!(buy(&routes).await.0, StatusCode::CREATED);
}

#[tokio::test]
async fn a_lost_lock_is_500_without_a_retry() {
    let test = TestLocks::new();
    let routes = routes(test.manager(), Duration::from_mins(10)).await;
    let sale = tokio::spawn(async move { buy(&routes).await });
    while test.granted().is_empty() {
        tokio::task::yield_now().await;
    }
    test.lose("sale", &1);
    assert_eq!(sale.await.unwrap(), answer(StatusCode::INTERNAL_SERVER_ERROR, None, "lost"));
}

#[tokio::test]
async fn locks_that_are_shut_down_are_503() {
    let test = TestLocks::new();
    let routes = routes(test.manager(), Duration::ZERO).await;
    test.manager().shutdown().await;
    assert_eq!(buy(&routes).await, answer(StatusCode::SERVICE_UNAVAILABLE, Some(1), "shutting_down"));
}

#[tokio::test]
async fn too_many_waiters_are_503() {
    let test = TestLocks::with(LockManager::builder().max_waiters_per_key(1));
    let routes = routes(test.manager(), Duration::ZERO).await;
    let item = test.hold_elsewhere("sale", &1).await;
    let first = tokio::spawn({
        let routes = routes.clone();
        async move { buy(&routes).await }
    });
    while test.manager().stats().waiting == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(buy(&routes).await, answer(StatusCode::SERVICE_UNAVAILABLE, Some(1), "overloaded"));
    drop(item);
    assert_eq!(first.await.unwrap().0, StatusCode::CREATED);
}

#[test]
fn each_kind_of_error_has_its_status() {
    let status = |error: LockError| LockProblem::from(error).problem().status.as_u16();
    assert_eq!(status(errors::timeout("k", Duration::ZERO, None)), 409);
    assert_eq!(status(errors::too_many_waiters("k", 5)), 503);
    assert_eq!(status(errors::backend("k", "refused")), 503);
    assert_eq!(status(errors::shut_down("k")), 503);
    assert_eq!(status(errors::lost("k", true)), 500);
    assert_eq!(status(LockError::NotInstalled), 500);
    let crowd = LockProblem::of_crowd(errors::timeout("k", Duration::from_secs(5), None)).problem();
    assert_eq!((crowd.status.as_u16(), crowd.retry_after), (503, Some(Duration::from_secs(1))));
}

#[tokio::test]
async fn a_missing_item_is_404_and_a_sold_one_is_409() {
    let test = TestLocks::new();
    let routes = routes(test.manager(), Duration::ZERO).await;
    for path in ["/items/99/buy", "/orders/99/pay"] {
        assert_eq!(ask(&routes, Method::POST, path, "").await, answer(StatusCode::NOT_FOUND, None, "not_found"));
    }
    for _ in 0..5 {
        assert_eq!(buy(&routes).await.0, StatusCode::CREATED);
    }
    assert_eq!(buy(&routes).await, answer(StatusCode::CONFLICT, None, "sold_out"));
}
