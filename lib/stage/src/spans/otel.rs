//! Spans for OpenTelemetry, by whatever exports them.

use super::SpanKind;
use onlooker_event::TraceParent;
use opentelemetry::global::{BoxedSpan, BoxedTracer};
use opentelemetry::trace::{
    self, Span as _, SpanBuilder, SpanContext, SpanId, Status, TraceContextExt, TraceFlags, TraceId,
    TraceState, Tracer,
};
use opentelemetry::{Context, KeyValue};
use std::sync::OnceLock;
use std::time::SystemTime;

static TRACER: OnceLock<BoxedTracer> = OnceLock::new();

/// From here on spans are begun with this tracer. Only the first call counts.
pub fn export(tracer: BoxedTracer) {
    // Whoever comes second finds that it is done.
    let _second = TRACER.set(tracer);
}

/// Whether spans are exported.
pub fn is_on() -> bool {
    TRACER.get().is_some()
}

/// A span. Dropped without [`Span::done`] it says that its work was given up: somebody else, or a later attempt, does it.
#[derive(Debug)]
pub struct Span {
    inner: BoxedSpan,
    done: bool,
}

impl Span {
    pub(super) fn begin(
        kind: SpanKind,
        name: &'static str,
        parent: Option<&TraceParent>,
        begun: Option<SystemTime>,
    ) -> Option<Self> {
        let tracer = TRACER.get()?;
        let mut builder = SpanBuilder::from_name(name).with_kind(match kind {
            SpanKind::Server => trace::SpanKind::Server,
            SpanKind::Consumer => trace::SpanKind::Consumer,
        });
        builder.start_time = begun;
        let inner = tracer.build_with_context(builder, &parent.map_or_else(Context::new, context));
        // One that is not recorded is worth nothing, and the parent is passed on as it came.
        inner.is_recording().then_some(Self { inner, done: false })
    }

    /// What is passed on to whoever goes on with it.
    pub fn place(&self) -> Option<TraceParent> {
        let own = self.inner.span_context();
        let trace_id = onlooker_event::TraceId::new(own.trace_id().to_bytes())?;
        TraceParent::new(trace_id, own.span_id().to_bytes(), own.trace_flags().to_u8())
    }

    /// Says something about it.
    pub fn text(&mut self, key: &'static str, value: &'static str) {
        self.inner.set_attribute(KeyValue::new(key, value));
    }

    /// Says something about it.
    pub fn number(&mut self, key: &'static str, value: i64) {
        self.inner.set_attribute(KeyValue::new(key, value));
    }

    /// It has ended well.
    pub fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if !self.done {
            self.inner.set_status(Status::error("given up"));
        }
        self.inner.end();
    }
}

fn context(parent: &TraceParent) -> Context {
    let remote = SpanContext::new(
        TraceId::from_bytes(parent.trace_id().bytes()),
        SpanId::from_bytes(parent.parent_id()),
        TraceFlags::new(parent.flags()),
        true,
        TraceState::NONE,
    );
    Context::new().with_remote_span_context(remote)
}
