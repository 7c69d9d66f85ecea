//! [`serve`]: the service from its start to its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::nightly_report::report_each_night;
use crate::telemetry::Telemetry;
use crate::{App, Settings, Shop, StartFailure, router};

/// How long requests may take to end after the signal. Together with the 5 s of the locks (`Builder::drain`) and their last 6 s it
/// fits into the 30 s that Kubernetes gives by default.
const DRAIN: Duration = Duration::from_secs(15);

/// Serves until `stop` is cancelled, then stops in this order:
///
/// 1. **axum**: no new connections; requests that were accepted are answered. They still need locks.
/// 2. **the background tasks**: the nightly report ends if it has begun.
/// 3. **the locks**: `shutdown` releases what is left, so that other instances need not wait for a lease to expire.
/// 4. **the database**: a body of step 3 may still have used it.
/// 5. **the telemetry**: it reports all the steps before.
///
/// In the reverse order (locks first) each accepted request that still needs a lock would get 503.
///
/// # Errors
///
/// When the service can't start, or its socket fails.
///
/// # Cancel safety
///
/// Not cancel safe: the locks of a dropped call expire with their leases. Cancel `stop`.
pub async fn serve(settings: Settings, stop: CancellationToken) -> Result<(), StartFailure> {
    let telemetry = Telemetry::install()?;
    let metrics = telemetry.metrics.clone();
    let shop = Arc::new(Shop::open(&settings).await?);
    let app = App::new(Arc::clone(&shop), metrics.clone(), stop.clone());

    let mut background = JoinSet::new();
    background.spawn(report_each_night(Arc::clone(&shop), stop.clone()));
    background.spawn(app.live.clone().publish(Arc::clone(&shop)));
    let upkeep = tokio::spawn(Telemetry::keep_up(metrics));

    let listener = TcpListener::bind((settings.host.as_str(), settings.port)).await?;
    tracing::info!("listening on http://{}", listener.local_addr()?);
    let served = serve_http(listener, app, &stop).await;

    // The service also ends when its socket fails: then the background tasks have not been stopped yet.
    stop.cancel();
    while background.join_next().await.is_some() {}
    upkeep.abort();
    shop.locks.shutdown().await;
    shop.database.close().await;
    tracing::info!("stopped");
    drop(telemetry);
    Ok(served?)
}

async fn serve_http(listener: TcpListener, app: App, stop: &CancellationToken) -> io::Result<()> {
    let server = axum::serve(listener, router(app)).with_graceful_shutdown(stop.clone().cancelled_owned());
    let too_late = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        served = server => served,
        () = too_late => {
            tracing::warn!("some requests did not end in time, and are given up");
            Ok(())
        }
    }
}

/// Waits for SIGTERM or ctrl-c.
///
/// # Errors
///
/// When the process can't listen for signals.
///
/// # Cancel safety
///
/// Cancel safe.
pub async fn stop_signal() -> io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted,
            _ = terminate.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}
