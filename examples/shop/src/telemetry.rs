//! Events on stdout, and the numbers of `/metrics`.

use std::io::IsTerminal;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::StartFailure;

/// From a lock that is free to a night of work, in seconds. With buckets the metrics are histograms, which the dashboard of
/// `docs/telemetry` wants.
const BUCKETS: [f64; 7] = [0.000_1, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0];

/// How often the exporter forgets what it need not keep.
const UPKEEP: Duration = Duration::from_secs(5);

/// Switches on events and metrics for this process: once, and before the locks are made. `RUST_LOG` chooses the events;
/// `RUST_LOG=info,lock_runtime=debug` shows each wait and each hold.
///
/// # Errors
///
/// When the process has a subscriber or a recorder already.
pub fn install() -> Result<PrometheusHandle, StartFailure> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // Colours on a terminal only.
    let lines = tracing_subscriber::fmt::layer().with_ansi(std::io::stdout().is_terminal());
    tracing_subscriber::registry().with(filter).with(lines).try_init()?;
    let builder =
        PrometheusBuilder::new().set_buckets_for_metric(Matcher::Prefix("cache_lock_".to_owned()), &BUCKETS)?;
    Ok(builder.install_recorder()?)
}

pub(crate) async fn keep_up(metrics: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP).await;
        metrics.run_upkeep();
    }
}
