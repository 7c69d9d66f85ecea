//! [`router`]: which path does what.

use std::sync::Arc;

use axum::extract::{FromRef, Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse};
use axum::routing::{get, post};
use axum::{Json, Router};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

use crate::address::{default_addresses, put_default_address};
use crate::live::{Live, events};
use crate::{Failure, Payment, Receipt, Shop};

/// What the handlers share.
#[derive(Clone, Debug, FromRef)]
pub struct App {
    pub(crate) shop: Arc<Shop>,
    pub(crate) live: Live,
    metrics: PrometheusHandle,
}

impl App {
    /// The shop, its numbers for `/metrics`, and the token that stops it.
    #[must_use]
    pub fn new(shop: Arc<Shop>, metrics: PrometheusHandle, stop: CancellationToken) -> Self {
        Self { shop, live: Live::new(stop), metrics }
    }
}

/// The service's paths.
///
/// The page and the metrics show which instance holds which lock. A public service should serve them on a separate port.
pub fn router(app: App) -> Router {
    Router::new()
        .route("/items/{id}/buy", post(buy))
        .route("/orders/{id}/pay", post(pay))
        .route("/users/{id}/default-address", get(default_addresses).put(put_default_address))
        .route("/", get(async || Html(include_str!("page.html"))))
        .route("/events", get(events))
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "alive\n"))
        .route("/ready", get(ready))
        .with_state(app)
}

async fn buy(State(shop): State<Arc<Shop>>, Path(item): Path<i64>) -> Result<(StatusCode, Json<Receipt>), Failure> {
    Ok((StatusCode::CREATED, Json(shop.buy(item).await?)))
}

async fn pay(State(shop): State<Arc<Shop>>, Path(order): Path<i64>) -> Result<Json<Payment>, Failure> {
    Ok(Json(shop.pay(order).await?))
}

/// Whether the instance should get requests. It is not ready while the server of its locks is away. But it is alive: restarting it for
/// that would make the outage longer.
async fn ready(State(shop): State<Arc<Shop>>) -> (StatusCode, &'static str) {
    if shop.locks.is_connected() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the server of the locks is away\n")
    }
}

async fn metrics(State(metrics): State<PrometheusHandle>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.render())
}
