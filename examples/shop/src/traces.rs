//! [`Traces`]: spans for OpenTelemetry, by OTLP over HTTP. Only with the feature `otel`.
//!
//! `OTEL_EXPORTER_OTLP_ENDPOINT` names the collector, `http://localhost:4318` by default. A trace has the shop's own spans, and in
//! them `cache_lock.wait` and `cache_lock.hold` with the fields that `docs/telemetry.md` lists.

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};

use crate::StartFailure;

/// The spans of the locks have the level `DEBUG`. `RUST_LOG` is for stdout, and does not hide them here.
const SPANS: &str = "shop=info,lock_runtime=debug";

/// Sends spans in the background.
#[derive(Debug)]
pub(crate) struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    pub(crate) fn from_env() -> Result<Self, StartFailure> {
        let exporter = SpanExporter::builder().with_http().build()?;
        let resource = Resource::builder().with_service_name("shop").build();
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
        Ok(Self { provider })
    }

    pub(crate) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        let tracer = self.provider.tracer("shop");
        tracing_opentelemetry::layer().with_tracer(tracer).with_filter(EnvFilter::new(SPANS))
    }
}

/// Sends what has not been sent yet. It blocks for the collector's answer, so it is the last step.
impl Drop for Traces {
    fn drop(&mut self) {
        if let Err(error) = self.provider.shutdown() {
            eprintln!("the last spans were not sent: {error}");
        }
    }
}
