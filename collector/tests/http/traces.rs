//! The trace that a request says it is part of.

use crate::support::{Request, config, post, start, trusted};
use onlooker_collector::{AcceptTraces, CollectorConfig};

const VIEW: &str = r#"{"site":"blog","item":"/a"}"#;
const NAMED: &str = r#"{"site":"blog","item":"/a","viewer":"reader-4711"}"#;
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn accepting(accept_traces: AcceptTraces) -> CollectorConfig {
    CollectorConfig { accept_traces, ..config() }
}

#[tokio::test]
async fn all_views_of_a_request_carry_it() {
    let server = start(accepting(AcceptTraces::All)).await;
    let many = post(format!("[{VIEW},{{}},{VIEW}]")).header("Traceparent", TRACE);
    server.send(many).await.expect(202);
    assert_eq!(server.log.traces(), [Some(TRACE.to_owned()), Some(TRACE.to_owned())]);
    let pixel = Request::new("GET", "/v1/view.gif?site=blog&item=a").header("traceparent", TRACE);
    server.send(pixel).await.expect(200);
    assert_eq!(server.log.traces(), [Some(TRACE.to_owned())]);
    // The next request on the same server has none of its own.
    server.post(VIEW).await.expect(202);
    assert_eq!(server.log.traces(), [None]);
}

#[tokio::test]
async fn whose_word_counts_is_a_setting() {
    for (accept, of_public, of_back_end) in [
        (AcceptTraces::None, false, false),
        (AcceptTraces::Trusted, false, true),
        (AcceptTraces::All, true, true),
    ] {
        let server = start(accepting(accept)).await;
        for (request, taken) in [(post(VIEW), of_public), (trusted(NAMED), of_back_end)] {
            server.send(request.header("traceparent", TRACE)).await.expect(202);
            assert_eq!(server.log.traces(), [taken.then(|| TRACE.to_owned())], "{accept:?}");
        }
    }
}

#[tokio::test]
async fn one_that_says_nothing_changes_nothing() {
    let server = start(accepting(AcceptTraces::All)).await;
    let zeros = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
    for bad in ["", "nonsense", zeros, &TRACE.to_uppercase(), &format!("{TRACE}-x"), &"0".repeat(5_000)] {
        server.send(post(VIEW).header("traceparent", bad)).await.expect(202);
        assert_eq!(server.log.traces(), [None], "{bad}");
    }
    let bytes = post(VIEW).header("traceparent", b"00-\xff\xfe");
    server.send(bytes).await.expect(202);
    assert_eq!(server.log.traces(), [None]);
    let twice = post(VIEW).header("traceparent", TRACE).header("traceparent", TRACE);
    server.send(twice).await.expect(202);
    assert_eq!(server.log.traces(), [None]);
    // A later version is read as far as it is known.
    let later = post(VIEW).header("traceparent", format!("42{}-more", &TRACE[2..]));
    server.send(later).await.expect(202);
    assert_eq!(server.log.traces(), [Some(TRACE.to_owned())]);
}
