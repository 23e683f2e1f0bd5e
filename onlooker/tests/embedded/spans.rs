//! Spans of views that are traced, as a receiver of OTLP over HTTP gets them.

use crate::support::{Home, LONG, TOKEN, view};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use onlooker_testkit::wait_until;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value as Any};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use prost::Message;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// What came, with the name of the service that sent it.
type Received = Arc<Mutex<Vec<(String, Span)>>>;

/// The other side: reads the requests as any collector would, and answers in kind.
async fn receiver() -> (String, Received) {
    async fn take(State(received): State<Received>, headers: HeaderMap, body: Bytes) -> Vec<u8> {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        let request = ExportTraceServiceRequest::decode(body).unwrap();
        for of_resource in request.resource_spans {
            let attributes = of_resource.resource.unwrap().attributes;
            let service = text(&attributes, "service.name").unwrap();
            let spans = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            received.lock().unwrap().extend(spans.map(|span| (service.clone(), span)));
        }
        ExportTraceServiceResponse::default().encode_to_vec()
    }
    let received = Received::default();
    let router = axum::Router::new().route("/v1/traces", post(take)).with_state(received.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, received)
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let value = attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value?;
    match value {
        Any::StringValue(text) => Some(text),
        Any::IntValue(number) => Some(number.to_string()),
        other => panic!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn exporting(home: &mut Home, url: &str, more: &[&str]) {
    let endpoint = format!("OTEL_EXPORTER_OTLP_ENDPOINT={url}");
    let all = [endpoint.as_str(), "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_SERVICE_NAME=views-of-tests"];
    home.set_environment(all.iter().chain(more).map(|set| (*set).to_owned()).collect());
}

async fn send(url: &str, traceparent: Option<String>, views: &Value) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let request = reqwest::Client::new().post(format!("{url}/v1/views")).bearer_auth(TOKEN).json(views);
    let request =
        traceparent.into_iter().fold(request, |request, value| request.header("traceparent", value));
    assert_eq!(request.send().await.unwrap().status(), 202);
}

fn named<'a>(spans: &'a [(String, Span)], name: &str) -> Vec<&'a Span> {
    spans.iter().map(|(_, span)| span).filter(|span| span.name == name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_leaves_a_span_in_each_room() {
    let (url, received) = receiver().await;
    let mut home = Home::with_token(&[]);
    exporting(&mut home, &url, &[]);
    let running = home.start();
    let sent = json!([view("a", "one"), view("a", "one")]);
    send(&running.session.url, Some(format!("00-{TRACE}-{PARENT}-01")), &sent).await;
    // Its sender does not record it: nobody does.
    let silent = TRACE.replace('4', "5");
    send(&running.session.url, Some(format!("00-{silent}-{PARENT}-00")), &view("b", "one")).await;
    wait_until("the spans", LONG, || received.lock().unwrap().len() >= 4).unwrap();
    wait_until("every outcome", LONG, || home.ask(&["tail"]).0.len() == 3).unwrap();
    running.stop();

    let spans = received.lock().unwrap().clone();
    assert!(spans.iter().all(|(service, _)| service == "views-of-tests"), "{spans:?}");
    assert!(spans.iter().all(|(_, span)| hex(&span.trace_id) == TRACE), "{spans:?}");
    let failed = StatusCode::Error as i32;
    assert!(spans.iter().all(|(_, span)| span.status.as_ref().is_none_or(|s| s.code != failed)), "{spans:?}");
    assert!(
        spans
            .iter()
            .all(|(_, s)| 0 < s.start_time_unix_nano && s.start_time_unix_nano <= s.end_time_unix_nano)
    );
    let [request] = named(&spans, "collector.request")[..] else { panic!("{spans:?}") };
    assert_eq!((hex(&request.parent_span_id).as_str(), request.kind), (PARENT, SpanKind::Server as i32));
    assert_eq!(text(&request.attributes, "onlooker.views").as_deref(), Some("2"));
    let judged = named(&spans, "filter.judge");
    let mut outcomes: Vec<_> =
        judged.iter().map(|span| text(&span.attributes, "onlooker.outcome").unwrap()).collect();
    outcomes.sort_unstable();
    assert_eq!(outcomes, ["counted", "ignored"]);
    assert!(judged.iter().all(|span| span.parent_span_id == request.span_id), "{judged:?}");
    assert!(judged.iter().all(|span| span.kind == SpanKind::Consumer as i32), "{judged:?}");
    let [applied] = named(&spans, "counter.apply")[..] else { panic!("{spans:?}") };
    let of = judged.iter().find(|span| span.span_id == applied.parent_span_id).unwrap();
    assert_eq!(text(&of.attributes, "onlooker.outcome").as_deref(), Some("counted"));
    assert_eq!(text(&applied.attributes, "messaging.destination.name").as_deref(), Some("views.counted"));
    // What was not recorded is carried as it came.
    let (found, _) = home.ask(&["tail", "--trace", &silent]);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sampler_decides_where_a_trace_begins() {
    for (sampler, records) in [("always_off", false), ("parentbased_always_on", true)] {
        let (url, received) = receiver().await;
        let mut home = Home::with_token(&[]);
        exporting(&mut home, &url, &[&format!("OTEL_TRACES_SAMPLER={sampler}")]);
        let running = home.start();
        send(&running.session.url, None, &view("a", "one")).await;
        wait_until("the outcome", LONG, || home.ask(&["tail"]).0.len() == 1).unwrap();
        if records {
            wait_until("the spans", LONG, || received.lock().unwrap().len() == 3).unwrap();
        }
        running.stop();
        let (found, _) = home.ask(&["tail", "--topic", "views"]);
        let spans = received.lock().unwrap().clone();
        let told = found[0].get("trace_id").map(|id| id.as_str().unwrap().to_owned());
        assert_eq!(told, spans.first().map(|(_, span)| hex(&span.trace_id)), "{sampler}");
        assert_eq!(told.is_some(), records, "{sampler}");
    }
}

#[test]
fn what_it_does_not_speak_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_onlooker"));
    command.args(["run", "--dir"]).arg(folder.path().join("data")).env("HOME", folder.path());
    command.args(["--set", "collector.listen=127.0.0.1:0"]).env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let output = command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317").output().unwrap();
    let told = crate::support::text(&output);
    assert!(!output.status.success() && told.contains("this program speaks http/protobuf"), "{told}");
}
