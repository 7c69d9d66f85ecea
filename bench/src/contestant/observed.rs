//! This project with a subscriber. Each contestant has its own process, and so its own subscriber.

use tracing::Level;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer as _, Registry};

use super::{Contestant, Ours};

/// Every event and span of this level goes to a layer that keeps nothing.
fn listen(level: Level) {
    let listener = Registry::default().with(Nothing.with_filter(LevelFilter::from_level(level)));
    // A process that connects twice has a subscriber already.
    let _ = tracing::subscriber::set_global_default(listener);
}

struct Nothing;

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Nothing {}

macro_rules! observed {
    ($(#[$doc:meta])* $name:ident, $listen:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $name(Ours);

        impl Contestant for $name {
            async fn connect(url: &str) -> Result<Self, String> {
                $listen;
                Ours::connect(url).await.map(Self)
            }

            async fn with<T: Send + 'static>(
                &self,
                key: &str,
                body: impl Future<Output = T> + Send + 'static,
            ) -> Result<T, String> {
                self.0.with(key, body).await
            }
        }
    };
}

observed!(
    /// A service that logs at `INFO`: the spans are off.
    Informed,
    listen(Level::INFO)
);
observed!(
    /// A service that traces: each lock has its spans.
    Traced,
    listen(Level::DEBUG)
);
observed!(
    /// A service with an exporter for Prometheus.
    Metered,
    meter()
);

#[cfg(feature = "metrics")]
fn meter() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    // A process that connects twice has one already.
    let _ = metrics::set_global_recorder(recorder);
}

/// Then no case has this contestant.
#[cfg(not(feature = "metrics"))]
fn meter() {}
