//! Bodies: their forms, their limits, and what is broken in them.

use crate::support::{config, post, start, trusted};
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::io::Write;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

const VIEW: &str = r#"{"site":"blog","item":"/a"}"#;

#[tokio::test]
async fn one_view_answers_its_id_and_is_keyed_by_its_viewer() {
    let server = start(config()).await;
    let answer = server.post(VIEW).await.expect(202);
    let json = answer.json();
    let records = server.log.take_keyed();
    let (key, view) = &records[0];
    assert_eq!(key, &view.viewer.0);
    let hex: String = view.view_id.0.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(json["view_id"].as_str().unwrap().replace('-', ""), hex);
    assert_eq!(json["results"][0]["view_id"], json["view_id"]);
    // Version 7, and the time that it was received at.
    assert_eq!(hex.as_bytes()[12], b'7');
    assert_eq!(i64::from_str_radix(&hex[..12], 16).unwrap(), view.received_ms);
    assert_eq!((view.received_ms, view.key_version), (view.event_ms, 7));
    assert_eq!(server.metric("onlooker_collector_accepted_total"), 1.0);
}

#[tokio::test]
async fn arrays_and_lines_have_an_outcome_each_in_their_order() {
    let server = start(config()).await;
    let other = r#"{"site":"blog","item":null}"#;
    let bodies = [
        format!("[{VIEW}, {other} ,{VIEW}]"),
        format!("{VIEW}\n{other}\r\n\n{VIEW}\n"),
        format!(" \u{feff}\n[{VIEW},{other},{VIEW}]\n"),
    ];
    for body in bodies {
        for request in [post(&body), post(gzip(body.as_bytes())), post(&body).chunked()] {
            let answer = server.send(request).await.expect(202);
            assert_eq!(answer.outcomes(), ["accepted", "missing_field", "accepted"], "{body}");
            assert_eq!(answer.json()["results"][1]["error"]["field"], "item");
            assert_eq!(server.log.take().len(), 2);
        }
    }
    let pretty = "{\n  \"site\": \"blog\",\n  \"item\": \"/a\"\n}\n";
    assert!(
        server.post(pretty).await.expect(202).json()["view_id"].is_string(),
        "one view over several lines"
    );
    let refused = server.post(&format!("[{other},{other}]")).await.expect(400);
    assert_eq!(refused.outcomes(), ["missing_field"; 2]);
}

#[tokio::test]
async fn a_client_that_sends_its_batch_again_names_its_views_again() {
    let server = start(config()).await;
    let batch = |n: usize| {
        let views: Vec<_> =
            (0..n).map(|i| format!(r#"{{"site":"blog","item":"/{i}","id":"v-{i}"}}"#)).collect();
        views.join("\n")
    };
    server.post(&batch(3)).await.expect(202);
    server.post(&batch(4)).await.expect(202);
    let ids: Vec<_> = server.log.take().iter().map(|v| v.client_id.clone().unwrap().to_string()).collect();
    assert_eq!(
        ids,
        ["v-0", "v-1", "v-2", "v-0", "v-1", "v-2", "v-3"],
        "what a repeat is, the filter decides"
    );
}

#[tokio::test]
async fn gzip_is_known_by_its_bytes() {
    let server = start(config()).await;
    let packed = gzip(VIEW.as_bytes());
    for request in [
        post(&packed),
        post(&packed).header("Content-Encoding", "gzip"),
        post(&packed).header("Content-Encoding", "identity"),
        post(VIEW).header("Content-Encoding", "gzip"),
        post([gzip(&VIEW.as_bytes()[..9]), gzip(&VIEW.as_bytes()[9..])].concat()),
        post(&packed).header("Content-Encoding", "gzip").chunked(),
    ] {
        server.send(request).await.expect(202);
        assert_eq!(server.log.take().len(), 1);
    }
    let refused = [
        (post(gzip(&packed)).header("Content-Encoding", "gzip, gzip"), 400, "bad_gzip"),
        (post(&packed[..packed.len() - 5]), 400, "bad_gzip"),
        (post([&packed[..], b"tail"].concat()), 400, "bad_gzip"),
        (post(b"\x28\xb5\x2f\xfd\x04").header("Content-Encoding", "zstd"), 415, "unsupported_encoding"),
        (post(b"\x28\xb5\x2f\xfd\x04"), 400, "malformed"),
        (post(gzip(&vec![b' '; 5 << 20])), 413, "body_too_large"),
    ];
    for (request, status, code) in refused {
        assert_eq!(server.send(request).await.expect(status).code(), code);
    }
    assert_eq!(server.log.take(), []);
}

#[tokio::test]
async fn limits_are_named_with_what_came() {
    let server = start(config()).await;
    let answer = server.send(post(vec![b' '; (4 << 20) + 1])).await.expect(413);
    assert_eq!(answer.json()["error"]["limit"], 4 << 20);
    assert_eq!(answer.json()["error"]["got"], (4 << 20) + 1);
    let answer = server.send(post(vec![b' '; (4 << 20) + 1]).chunked()).await.expect(413);
    assert_eq!(answer.code(), "body_too_large");
    let answer = server.post(&format!("[{}]", vec![VIEW; 1001].join(","))).await.expect(413);
    assert_eq!(
        (answer.json()["error"]["limit"].as_u64(), answer.code().as_str()),
        (Some(1000), "too_many_items")
    );
    assert_eq!(answer.json()["error"]["got"], 1001);
    server.post(&format!("[{}]", vec![VIEW; 1000].join(","))).await.expect(202);
    assert_eq!(server.log.take().len(), 1000);
    for (body, code) in
        [("", "empty_body"), (" \n", "empty_body"), ("[]", "empty_body"), ("hello", "malformed")]
    {
        assert_eq!(server.post(body).await.expect(400).code(), code, "{body}");
    }
}

#[tokio::test]
async fn limits_of_ids_are_in_bytes() {
    let server = start(config()).await;
    let view = |field: &str, value: &str| format!(r#"{{"site":"blog","item":"/a","{field}":"{value}"}}"#);
    let face = "\u{1F600}";
    for (field, limit) in [("item", 1024), ("id", 128)] {
        for value in ["a".repeat(limit), face.repeat(limit / 4)] {
            let body = view(field, &value).replacen(r#""item":"/a","item""#, r#""item""#, 1);
            server.post(&body).await.expect(202);
        }
        for (value, got) in [("a".repeat(limit + 1), limit + 1), (face.repeat(limit / 4 + 1), limit + 4)] {
            let body = view(field, &value).replacen(r#""item":"/a","item""#, r#""item""#, 1);
            let error = server.post(&body).await.expect(400).json()["error"].clone();
            assert_eq!((&error["code"], &error["field"]), (&"invalid_id".into(), &field.into()));
            assert_eq!((&error["limit"], &error["got"]), (&limit.into(), &got.into()));
        }
    }
}

#[tokio::test]
async fn one_view_that_is_too_large_costs_no_other() {
    let server = start(config()).await;
    let mut views = vec![VIEW.to_owned(); 100];
    views[50] = format!(r#"{{"site":"blog","item":"/a","title":"{}"}}"#, "x".repeat(1_258_291));
    let answer = server.post(&format!("[{}]", views.join(","))).await.expect(202);
    let outcomes = answer.outcomes();
    assert_eq!(outcomes.iter().filter(|o| *o == "accepted").count(), 99);
    assert_eq!(outcomes[50], "view_too_large");
    assert_eq!(answer.json()["results"][50]["error"]["limit"], 65_536);
    assert_eq!(server.log.take().len(), 99);
    assert_eq!(server.post(&views[50]).await.expect(413).code(), "view_too_large");
    assert_eq!(server.metric(r#"onlooker_collector_rejected_total{code="view_too_large"}"#), 2.0);
}

#[tokio::test]
async fn half_a_surrogate_pair_drops_no_payload() {
    let server = start(config()).await;
    let batch = r#"[{"site":"blog","item":"1"},
        {"site":"blog","item":"2","title":"hi \ud83d","referrer":"hi \ud83d"},
        {"site":"blog","item":"3\ud83d"},{"site":"blog","item":"3"}]"#;
    let answer = server.post(batch).await.expect(202);
    assert_eq!(answer.outcomes(), ["accepted", "accepted", "invalid_id", "accepted"]);
    let views = server.log.take();
    assert_eq!(views[1].referrer.as_deref(), Some("hi \u{FFFD}"));
}

#[tokio::test]
async fn a_nul_spoils_an_id_and_nothing_else() {
    let server = start(config()).await;
    let code = async |view: &str| server.send(trusted(view)).await.expect(400).code();
    assert_eq!(code(r#"{"item":"a\u0000b","viewer":"v1"}"#).await, "invalid_id");
    assert_eq!(code(r#"{"item":"a","id":"x\u0000","viewer":"v1"}"#).await, "invalid_id");
    assert_eq!(code(r#"{"item":"a","viewer":"v\u0000"}"#).await, "invalid_viewer");
    assert_eq!(code("{\"item\":\"a\u{85}b\",\"viewer\":\"v1\"}").await, "invalid_id");
    assert_eq!(server.metric(r#"onlooker_collector_rejected_total{code="invalid_id"}"#), 3.0);
    let request = post(r#"{"site":"blog","item":"a","referrer":"r\u0000s"}"#).header("User-Agent", "x%00y");
    server.send(request).await.expect(202);
    let view = server.log.one();
    assert_eq!((view.referrer.as_deref(), view.user_agent.as_deref()), (Some("r\u{FFFD}s"), Some("x%00y")));
    assert_eq!(server.post("{\"site\":\"blog\",\"item\":\"a\0b\"}").await.expect(400).code(), "malformed");
}

#[tokio::test]
async fn a_header_that_the_site_does_not_control_refuses_nothing() {
    let server = start(config()).await;
    let bad: [&[u8]; 7] = [
        b"https://shop.example/20%-off/",
        b"https://shop.example/?q={a}|b c",
        "https://shop.example/über".as_bytes(),
        b"https://shop.example/caf\xe9",
        b"%zz",
        b"%C0%AF",
        b"\xff\xfe",
    ];
    for value in bad {
        let request = post(VIEW).header("Referer", value).header("User-Agent", value).header("Accept", value);
        server.send(request).await.expect(202);
        let view = server.log.one();
        assert_eq!(view.referrer.as_deref(), Some(&*String::from_utf8_lossy(value)));
        assert_eq!(view.user_agent, view.referrer);
    }
    let long = "ü".repeat(2000);
    server.send(post(VIEW).header("Referer", &long).header("User-Agent", &long)).await.expect(202);
    let view = server.log.one();
    assert_eq!((view.referrer.unwrap().len(), view.user_agent.unwrap().len()), (1024, 512));
}

#[tokio::test]
async fn a_slow_and_a_broken_body_are_told() {
    let mut config = config();
    config.body_timeout = std::time::Duration::from_millis(50);
    let server = start(config).await;
    let mut slow = server.connect().await;
    slow.write(b"POST /v1/views HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{").await;
    assert_eq!(slow.answer().await.expect(408).code(), "body_timeout");
    let mut broken = server.connect().await;
    broken.write(b"POST /v1/views HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n").await;
    assert_eq!(broken.answer().await.expect(400).code(), "body_broken");
    assert_eq!(server.log.take(), []);
}

#[test]
fn no_body_brings_it_down() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(start(config()));
    let fields = "site|key|item|id|session|referrer|viewer|ip|ua|at|owner|x";
    let values = r#"-?[0-9]{1,20}|"[a-z\\n\\u00e9 ]{0,9}"|"\\\\ud8[0-9a-f]{2}"|null|true|\[\]|\{\}|"blog"|"#;
    let like_views = format!(r#"\[?(\{{("({fields})":({values}),?){{0,4}}\}}[,\n]?){{0,4}}\]?"#);
    let bodies = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..100),
        proptest::string::string_regex(&like_views).unwrap().prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..100).prop_map(|bytes| gzip(&bytes)),
    ];
    TestRunner::new(ProptestConfig::with_cases(500))
        .run(&(bodies, any::<bool>()), |(body, with_token)| {
            let request = if with_token { trusted(&body) } else { post(&body) };
            let answer = runtime.block_on(server.send(request));
            prop_assert!([202, 400, 403].contains(&answer.status), "{:?}", answer);
            prop_assert!(answer.json().is_object());
            let accepted = answer.json()["accepted"].as_u64().unwrap_or(0);
            prop_assert_eq!(accepted, server.log.take().len() as u64);
            Ok(())
        })
        .unwrap();
    assert_eq!(server.metric("onlooker_http_panics_total{server=\"collector\"}"), 0.0);
}
