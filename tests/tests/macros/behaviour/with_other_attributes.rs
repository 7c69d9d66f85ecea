//! Locked fns with attributes of other crates: a handler, a span.

use axum::extract::Path;
use axum::http::{Request, StatusCode};
use axum::response::IntoResponse;
use lock_runtime::{LockManager, cache_lock};

use crate::behaviour::{Result, ShopError, alone};

#[cache_lock(prefix = "axum", key = id, timeout_ms = 0)]
async fn handler(Path(id): Path<u64>, body: String) -> Result<String, ShopError> {
    tokio::task::yield_now().await;
    if body.is_empty() {
        return Err(ShopError::SoldOut);
    }
    Ok(format!("{id} {body}"))
}

#[cache_lock(prefix = "axum", key = "all", on_fail = StatusCode::LOCKED.into_response())]
async fn into_response() -> axum::response::Response {
    StatusCode::OK.into_response()
}

/// Attributes that parse the whole fn, including its body, with another version of the parser.
mod debugged {
    use super::{Path, Result, ShopError, cache_lock};

    // It type-checks a copy of the body without all other attributes. So when it stands above, the body can't use the
    // names that `guard` and `fenced` introduce.
    #[axum::debug_handler]
    #[cache_lock(prefix = "debugged", key = id)]
    pub(super) async fn above(Path(id): Path<u64>) -> Result<String, ShopError> {
        Ok(id.to_string())
    }

    #[cache_lock(prefix = "debugged", key = id, guard = guard, fenced = token)]
    #[axum::debug_handler]
    pub(super) async fn below(Path(id): Path<u64>) -> Result<String, ShopError> {
        Ok(format!("{} {}", guard.key(), u64::from(token) > 0))
    }

    #[cache_lock(prefix = "debugged", key = "all", timeout_ms = 0)]
    #[axum::debug_handler]
    pub(super) async fn plain() -> Result<String, ShopError> {
        Ok("all".to_owned())
    }
}

#[tokio::test]
async fn a_handler_that_another_attribute_reads_is_locked() {
    alone(async {
        assert_eq!(debugged::above(Path(1)).await.unwrap(), "1");
        assert_eq!(debugged::below(Path(1)).await.unwrap(), "debugged:1 true");
        assert_eq!(debugged::plain().await.unwrap(), "all");
    })
    .await;
}

#[tokio::test]
async fn a_handler_of_axum_is_locked() {
    use tower_service::Service as _;
    let locks = LockManager::in_memory();
    let routes = axum::Router::new().route("/{id}", axum::routing::any(handler));
    let mut routes: axum::Router = routes.route("/", axum::routing::any(into_response));
    let mut status = async |path: &str, body: &'static str| {
        let request = Request::builder().uri(path).body(body.into()).unwrap();
        let request: Request<axum::body::Body> = request;
        locks.scope(routes.call(request)).await.unwrap().status()
    };
    assert_eq!(status("/7", "x").await, StatusCode::OK);
    assert_eq!(status("/7", "").await, StatusCode::GONE);
    assert_eq!(status("/", "").await, StatusCode::OK);
    let held = locks.lock("axum", &7).acquire().await.unwrap();
    assert_eq!(status("/7", "x").await, StatusCode::LOCKED);
    drop(held);
}

#[tracing::instrument(skip(secret), err)]
#[cache_lock(prefix = "tracing", key = id, guard = guard)]
async fn above(id: u64, mut secret: String) -> Result<String> {
    secret.push('!');
    Ok(secret + guard.key())
}

#[cache_lock(prefix = "tracing", key = id, guard = guard)]
#[tracing::instrument(skip(secret), err)]
async fn below(id: u64, mut secret: String) -> Result<String> {
    secret.push('!');
    Ok(secret + guard.key())
}

#[tokio::test]
async fn an_instrumented_fn_is_locked() {
    alone(async {
        assert_eq!(above(1, "s".into()).await.unwrap(), "s!tracing:1");
        assert_eq!(below(1, "s".into()).await.unwrap(), "s!tracing:1");
    })
    .await;
}
