//! Traces for OpenTelemetry: where spans go, as the standard environment variables say.
//!
//! `OTEL_EXPORTER_OTLP_ENDPOINT` (or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) switches it on; without it nothing is begun,
//! where the specification would send to a port of this machine. `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`,
//! `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG`, `OTEL_BSP_*` and the exporter's others are the SDK's own business.

use anyhow::{Context, Result, bail};
use onlooker_stage::spans;
use opentelemetry::global::BoxedTracer;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::time::Duration;

/// What the last spans get to be sent in.
const LAST_SPANS: Duration = Duration::from_secs(5);

/// Dropped, it sends what waits.
#[derive(Debug)]
pub(crate) struct Export(SdkTracerProvider);

impl Drop for Export {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(LAST_SPANS) {
            tracing::warn!(%error, "the last spans were not exported");
        }
    }
}

fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Begins to export, if it is asked for.
pub(crate) fn start() -> Result<Option<Export>> {
    let named =
        ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"].iter().find_map(|n| set(n));
    let off = set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || set("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
    let Some(endpoint) = named.filter(|_| !off) else { return Ok(None) };
    for name in ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"] {
        if let Some(protocol) = set(name).filter(|protocol| protocol != "http/protobuf") {
            bail!("{name} is {protocol}, and this program speaks http/protobuf");
        }
    }
    // The exporter's HTTP client takes the process's own. Fails only if it was done before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary).build();
    let exporter = exporter.with_context(|| format!("traces cannot be exported to {endpoint}"))?;
    let mut resource = Resource::builder();
    if set("OTEL_SERVICE_NAME").is_none()
        && !set("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|all| all.contains("service.name="))
    {
        resource = resource.with_service_name("onlooker");
    }
    let provider =
        SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build();
    spans::export(BoxedTracer::new(Box::new(provider.tracer("onlooker"))));
    tracing::info!(endpoint, "spans are exported");
    Ok(Some(Export(provider)))
}
