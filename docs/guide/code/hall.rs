//! The service of the guide's first chapter, as its reader writes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{env, io};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use lock_runtime::{ErrorKind, LockError, LockManager, cache_lock};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Stands for a database that all instances share: how many tickets are left.
type Stock = Arc<AtomicU64>;

/// Only one request at a time is in here for an event, whichever process it came to.
#[cache_lock(prefix = "tickets", key = event, timeout_ms = 2000)]
async fn buy(State(stock): State<Stock>, Path(event): Path<u64>) -> Result<String, Failure> {
    let left = stock.load(Ordering::Relaxed);
    if left == 0 {
        return Err(Failure::SoldOut);
    }
    tokio::time::sleep(std::time::Duration::from_millis(20)).await; // the card is charged
    stock.store(left - 1, Ordering::Relaxed);
    Ok(format!("a ticket for event {event}; {} left\n", left - 1))
}

enum Failure {
    SoldOut,
    Lock(LockError),
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let error = match self {
            Self::SoldOut => return (StatusCode::GONE, "sold out\n").into_response(),
            Self::Lock(error) => error,
        };
        tracing::warn!(%error, "no lock"); // The text is for you. It names keys and hosts.
        let (status, text) = match error.kind() {
            ErrorKind::Busy => (StatusCode::CONFLICT, "busy: try again\n"),
            ErrorKind::Lost => (StatusCode::INTERNAL_SERVER_ERROR, "interrupted: look before you try again\n"),
            // A key that a caller sent, and that names nothing: an empty text, for example.
            _ if matches!(error, LockError::InvalidKey { .. }) => (StatusCode::BAD_REQUEST, "no such event\n"),
            ErrorKind::Misuse => (StatusCode::INTERNAL_SERVER_ERROR, "internal error\n"),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "not now: try again\n"),
        };
        (status, text).into_response()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `RUST_LOG=info,lock_runtime=debug` shows more.
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    tracing_subscriber::fmt().with_env_filter(filter).init();
    // Before the locks are made: they look for an exporter once.
    let buckets = [0.000_1, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0];
    let metrics = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Prefix("cache_lock_".to_owned()), &buckets)?
        .install_recorder()?;
    let upkeep = metrics.clone(); // bounds the memory of what nobody scrapes
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    });

    // Without REDIS_URL the locks live in this process: enough to try it out.
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "memory://".to_owned());
    let locks = LockManager::builder().url(&url).namespace("hall").connect().await?;
    locks.install()?; // #[cache_lock] finds it

    let app = Router::new()
        .route("/events/{event}/tickets", post(buy))
        .with_state(Stock::new(AtomicU64::new(100)))
        .route("/metrics", get(async move || metrics.render()));
    let port = env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    tracing::info!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(stop_signal()?).await?;

    locks.shutdown().await; // after axum: its last requests still need locks
    Ok(())
}

/// Resolves on ctrl-C, and on SIGTERM, which an orchestrator sends.
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use lock_runtime::testing::TestLocks;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_ticket_is_sold_twice() {
        let (test, stock) = (TestLocks::new(), Stock::new(AtomicU64::new(10)));
        let buyers = (0..100).map(|_| buy(State(Arc::clone(&stock)), Path(7)));
        let outcomes = test.manager().scope(futures_util::future::join_all(buyers)).await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 10);
        assert_eq!(stock.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_event_is_a_conflict() {
        let test = TestLocks::new();
        let _other = test.hold_elsewhere("tickets", &7).await;
        let stock = Stock::new(AtomicU64::new(10));
        let outcome = test.manager().scope(buy(State(stock), Path(7))).await;
        assert_eq!(outcome.into_response().status(), StatusCode::CONFLICT);
    }
}
