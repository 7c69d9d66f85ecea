//! [`Telemetry`]: events on stdout, the numbers of `/metrics`, and traces with the feature `otel`.

use std::io::IsTerminal;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::StartFailure;
#[cfg(feature = "otel")]
use crate::traces::Traces;

/// From a free lock to a night of work, in seconds. With buckets the metrics are histograms, which the dashboard of
/// `docs/telemetry` needs.
const BUCKETS: [f64; 7] = [0.000_1, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0];

/// How often the exporter drops data that it need not keep.
const UPKEEP: Duration = Duration::from_secs(5);

/// The telemetry of the service. Dropping it sends the last traces.
#[derive(Debug)]
pub(crate) struct Telemetry {
    pub(crate) metrics: PrometheusHandle,
    #[cfg(feature = "otel")]
    _traces: Traces,
}

impl Telemetry {
    /// Switches on events and metrics for this process: once, and before the locks are made. `RUST_LOG` chooses the events on
    /// stdout; `RUST_LOG=info,lock_runtime=debug` shows outages step by step.
    pub(crate) fn install() -> Result<Self, StartFailure> {
        let events = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
        // Colours only on a terminal.
        let lines = tracing_subscriber::fmt::layer().with_ansi(std::io::stdout().is_terminal()).with_filter(events);
        let subscriber = tracing_subscriber::registry().with(lines);
        #[cfg(feature = "otel")]
        let traces = Traces::from_env()?;
        #[cfg(feature = "otel")]
        let subscriber = subscriber.with(traces.layer());
        subscriber.try_init()?;

        let builder =
            PrometheusBuilder::new().set_buckets_for_metric(Matcher::Prefix("cache_lock_".to_owned()), &BUCKETS)?;
        Ok(Self {
            metrics: builder.install_recorder()?,
            #[cfg(feature = "otel")]
            _traces: traces,
        })
    }

    /// Never ends.
    pub(crate) async fn keep_up(metrics: PrometheusHandle) {
        loop {
            tokio::time::sleep(UPKEEP).await;
            metrics.run_upkeep();
        }
    }
}
