//! One view, followed by the trace that its request was part of.

use crate::support::{Home, LONG, Running, TOKEN, text, view};
use onlooker_testkit::wait_until;
use serde_json::{Value, json};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn header(trace: &str) -> String {
    format!("00-{trace}-00f067aa0ba902b7-01")
}

/// Sends views with these headers and the site's token, unless it is somebody without one.
async fn send(running: &Running, token: Option<&str>, traceparents: &[&str], views: &Value) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = format!("{}/v1/views", running.session.url);
    let mut request = reqwest::Client::new().post(url).json(views);
    for value in traceparents {
        request = request.header("traceparent", *value);
    }
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    assert_eq!(request.send().await.unwrap().status(), 202, "{traceparents:?}");
}

fn outcomes(home: &Home, views: usize) {
    wait_until("every outcome", LONG, || home.ask(&["tail"]).0.len() == views).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_is_found_by_its_trace_in_every_room() {
    let home = Home::with_token(&[]);
    let mut running = Some(home.start());
    let client = running.as_ref().unwrap().client();
    let now = running.as_ref().unwrap();
    send(now, Some(TOKEN), &[&header(TRACE)], &json!([view("a", "one"), view("a", "one")])).await;
    send(now, Some(TOKEN), &[], &view("b", "one")).await;
    // What says nothing changes nothing, nor does the word of somebody without a token.
    send(now, Some(TOKEN), &["00-nonsense"], &view("c", "one")).await;
    send(now, Some(TOKEN), &[&header(TRACE), &header(TRACE)], &view("d", "one")).await;
    send(now, None, &[&header(TRACE)], &json!({ "item": "e" })).await;
    outcomes(&home, 6);
    now.settle(&client, &["a", "b", "c", "d", "e"].map(|item| (item.to_owned(), 1)).into()).await;
    for open in [true, false] {
        if !open {
            running.take().unwrap().stop();
        }
        let (views, _) = home.ask(&["tail", "--topic", "views", "--trace", TRACE]);
        let items: Vec<_> = views.iter().map(|line| &line["item"]).collect();
        assert_eq!(items, ["a", "a"], "{views:?}");
        let (verdicts, _) = home.ask(&["tail", "--trace", &TRACE.to_uppercase()]);
        let mut kinds: Vec<_> = verdicts.iter().map(|line| line["kind"].as_str().unwrap()).collect();
        kinds.sort_unstable();
        assert_eq!(kinds, ["counted", "ignored"], "{verdicts:?}");
        assert!(verdicts.iter().all(|line| line["trace_id"] == TRACE), "{verdicts:?}");
        let (others, _) = home.ask(&["tail"]);
        assert_eq!(others.iter().filter(|line| line.get("trace_id").is_none()).count(), 4, "{others:?}");
        assert_eq!(home.ask(&["tail", "--trace", &TRACE.replace('4', "5")]).0, Vec::<Value>::new());

        let id = views[0]["view_id"].as_str().unwrap();
        let (lines, _) = home.ask(&["explain", id]);
        let said = (&lines[0]["view"]["trace_id"], &lines[0]["verdict"]["trace_id"]);
        assert_eq!(said, (&json!(TRACE), &json!(TRACE)), "{lines:?}");
        let shown = text(&home.on_folder(&["explain", id]));
        assert!(shown.contains(&format!("  trace    {TRACE}\n")), "{shown}");
        let shown = text(&home.on_folder(&["tail", "--trace", TRACE]));
        assert!(shown.contains(&format!("  trace {TRACE}  ")), "{shown}");
    }
    let output = home.on_folder(&["tail", "--trace", "abc"]);
    assert!(!output.status.success() && text(&output).contains("32 hexadecimal digits"), "{}", text(&output));
}

/// A letter keeps its trace, and what is sent again is of the same one.
#[tokio::test(flavor = "multi_thread")]
async fn a_letter_that_is_sent_again_keeps_its_trace() {
    let home = Home::with_token(&[]);
    let running = home.start();
    send(&running, Some(TOKEN), &[&header(TRACE)], &view("a", "one")).await;
    outcomes(&home, 1);
    running.stop();
    append_garbage(&home).await;
    let running = home.start();
    wait_until("the letter", LONG, || home.ask(&["dead", "list"]).0.len() == 1).unwrap();
    let (letters, _) = home.ask(&["dead", "list"]);
    assert_eq!(letters[0]["trace_id"], TRACE, "{letters:?}");
    let (done, _) = home.ask(&["dead", "retry", "--all"]);
    assert_eq!(done[0]["outcome"], "retried", "{done:?}");
    // It dies again, as a letter of its own.
    let dead = || home.ask(&["tail", "--topic", "views.dead", "--trace", TRACE]).0.len();
    wait_until("the second letter", LONG, || dead() == 2).unwrap();
    let (views, _) = home.ask(&["tail", "--topic", "views", "--trace", TRACE]);
    assert_eq!(views.len(), 3, "the view, the garbage, and the garbage again: {views:?}");
    running.stop();
}

/// Appends what nobody can read, as part of the trace, to a folder that no process has open.
async fn append_garbage(home: &Home) {
    use onlooker_embedded::log::{EmbeddedLog, LogConfig};
    use onlooker_embedded::store::Folder;
    use onlooker_event::TraceParent;
    use onlooker_ports::{LogWriter, OutgoingBatch, Topic};
    let folder = Folder::open(home.folder()).unwrap();
    let (log, _) = EmbeddedLog::open(&folder.log().unwrap(), 2, LogConfig::default()).unwrap();
    let mut batch = OutgoingBatch::default();
    batch.push(Topic::Views, b"key", b"garbage");
    batch.trace_last(TraceParent::parse(header(TRACE).as_bytes()).as_ref());
    log.writer().append(batch).await.unwrap();
    log.close().await;
}
