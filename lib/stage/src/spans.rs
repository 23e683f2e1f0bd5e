//! Spans of views that are traced, for whoever follows one through the rooms (OpenTelemetry).
//!
//! Without the feature `otel`, and with it until [`export`] was called, nothing is ever begun, which costs a look at a
//! constant. What a record carries from room to room is a [`TraceParent`], with or without spans.

#[cfg(feature = "otel")]
mod otel;
#[cfg(not(feature = "otel"))]
mod without;

#[cfg(feature = "otel")]
pub use otel::{Span, export, is_on};
#[cfg(not(feature = "otel"))]
pub use without::{Span, is_on};

use onlooker_event::TraceParent;
use std::time::SystemTime;

/// What a span is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// The answer to a request.
    Server,
    /// The work on a record of the log.
    Consumer,
}

/// Begins a span, at `begun` or now. None: nothing is exported, or the sampler does not want it; what is to be passed on
/// is then `parent`. Without a parent it begins a trace.
pub fn begin(
    kind: SpanKind,
    name: &'static str,
    parent: Option<&TraceParent>,
    begun: Option<SystemTime>,
) -> Option<Span> {
    if is_on() { Span::begin(kind, name, parent, begun) } else { None }
}

/// Begins the span of the work on a record at this place in the log, under the span that sent it. Only where the sender was
/// recorded: who sends millions decides once, where they begin.
pub fn of_record(
    name: &'static str,
    topic: &'static str,
    (partition, offset): (i32, i64),
    trace: Option<&TraceParent>,
) -> Option<Span> {
    let parent = trace.filter(|trace| is_on() && trace.is_sampled())?;
    let mut span = begin(SpanKind::Consumer, name, Some(parent), None)?;
    // The semantic conventions for messaging, as far as a room knows what they ask for.
    span.text("messaging.operation.type", "process");
    span.text("messaging.destination.name", topic);
    span.number("messaging.destination.partition.id", i64::from(partition));
    span.number("onlooker.offset", offset);
    Some(span)
}
