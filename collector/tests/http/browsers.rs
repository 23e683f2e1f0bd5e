//! What browsers send on their own account: content types, origins, preflights, prefetches, pixels.

use crate::support::{Answer, NOTHING, Request, config, post, start};
use onlooker_collector::SiteConfig;
use onlooker_event::Facts;

const VIEW: &str = r#"{"site":"blog","item":"/a"}"#;
const SHOP_VIEW: &str = r#"{"site":"shop","key":"pk-shop","item":"/a"}"#;

#[tokio::test]
async fn a_body_is_read_by_its_content_whatever_its_type() {
    let server = start(config()).await;
    for content_type in [
        "text/plain;charset=UTF-8",
        "application/json",
        "application/x-www-form-urlencoded",
        "application/x-ndjson",
        "image/png",
        "utter nonsense \u{e9}",
    ] {
        server.send(post(VIEW).header("Content-Type", content_type)).await.expect(202);
        assert_eq!(server.log.one().item.as_str(), "/a", "{content_type}");
    }
    server.post(VIEW).await.expect(202);
    // {"site":"blog","item":"/a"} in base64, and percent-encoded.
    for form in [
        "data=eyJzaXRlIjoiYmxvZyIsIml0ZW0iOiIvYSJ9",
        "data=%7B%22site%22%3A%22blog%22%2C%22item%22%3A%22%2Fa%22%7D&v=1",
    ] {
        let request = post(form).header("Content-Type", "application/x-www-form-urlencoded");
        server.send(request).await.expect(202);
    }
    assert_eq!(server.log.take().len(), 3);
}

fn is_open_to(answer: &Answer, origin: &str) -> bool {
    assert_eq!(answer.header("vary"), Some("origin"), "{answer:?}");
    let open = answer.header("access-control-allow-origin");
    assert_eq!(open.is_some(), answer.header("access-control-allow-credentials") == Some("true"));
    assert!(open.is_none_or(|echo| echo == origin), "{answer:?}");
    open.is_some()
}

#[tokio::test]
async fn an_allowed_origin_is_echoed_with_credentials() {
    let mut config = config();
    config.sites.remove("blog");
    let server = start(config).await;
    let shop = "https://shop.example.com";
    let answer = server.send(post(SHOP_VIEW).header("Origin", shop)).await.expect(202);
    assert!(is_open_to(&answer, shop));
    let preflight = Request::new("OPTIONS", "/v1/views")
        .header("Origin", shop)
        .header("Access-Control-Request-Method", "POST")
        .header("Access-Control-Request-Headers", "content-type");
    let answer = server.send(preflight).await.expect(204);
    assert!(is_open_to(&answer, shop));
    assert_eq!(answer.header("access-control-allow-methods"), Some("get, post"));
    let allowed = answer.header("access-control-allow-headers").unwrap();
    // What a page's own tracing adds must not keep its views away.
    for header in ["content-type", "traceparent", "tracestate"] {
        assert!(allowed.split(", ").any(|name| name == header), "{header} in {allowed}");
    }
    let refused = server.send(post("{").header("Origin", shop)).await.expect(400);
    assert!(is_open_to(&refused, shop), "the page may see what was wrong");
    let silent = server.post(SHOP_VIEW).await.expect(202);
    assert!(!is_open_to(&silent, shop), "nobody asked");
}

#[tokio::test]
async fn an_unknown_origin_is_not_let_in_by_the_browser_nor_counted() {
    let mut config = config();
    config.sites.remove("blog");
    let server = start(config).await;
    for evil in [
        "https://evil.example",
        "http://shop.example.com",
        "https://shop.example.com.evil.example",
        "https://shop.example.com:8443",
        "https://sh\u{f6}p.example.com",
    ] {
        let answer = server.send(post(SHOP_VIEW).header("Origin", evil)).await.expect(403);
        assert_eq!(answer.code(), "origin_not_allowed");
        assert!(!is_open_to(&answer, evil));
        let preflight = server.send(Request::new("OPTIONS", "/v1/views").header("Origin", evil)).await;
        assert!(!is_open_to(&preflight.expect(204), evil));
        let pixel = Request::new("GET", "/v1/view.gif?site=shop&key=pk-shop&item=a").header("Origin", evil);
        assert_eq!(server.send(pixel).await.expect(403).code(), "origin_not_allowed");
    }
    assert_eq!(server.log.take(), []);
    // What a page sends that hides where it is.
    server.send(post(SHOP_VIEW).header("Origin", "null")).await.expect(202);
    assert_eq!(server.log.take().len(), 1);
}

#[tokio::test]
async fn each_view_is_held_to_its_own_sites_origins() {
    let mut config = config();
    let other = SiteConfig { origins: vec!["https://blog.example.com".into()], ..SiteConfig::default() };
    config.sites.insert("blog".into(), other);
    let server = start(config).await;
    let batch = format!("[{VIEW},{SHOP_VIEW}]");
    let answer = server.send(post(batch).header("Origin", "https://blog.example.com")).await.expect(202);
    assert_eq!(answer.outcomes(), ["accepted", "origin_not_allowed"]);
    let answer =
        server.send(post(format!("[{SHOP_VIEW}]")).header("Origin", "https://blog.example.com")).await;
    assert_eq!(answer.expect(403).outcomes(), ["origin_not_allowed"]);
}

#[tokio::test]
async fn a_public_key_is_asked_for_where_one_is_configured() {
    let server = start(config()).await;
    let code = async |view: &str| server.post(view).await.expect(400).code();
    assert_eq!(code(r#"{"site":"shop","item":"a"}"#).await, "missing_field");
    assert_eq!(code(r#"{"site":"shop","key":"pk-other","item":"a"}"#).await, "unknown_key");
    assert_eq!(code(r#"{"site":"blog","key":"pk-shop","item":"a"}"#).await, "unknown_key");
    assert_eq!(code(r#"{"site":"nowhere","item":"a"}"#).await, "unknown_site");
    assert_eq!(code(r#"{"item":"a"}"#).await, "missing_field");
    server.post(r#"{"key":"pk-shop","item":"a"}"#).await.expect(202);
    assert_eq!(server.log.one().site.as_str(), "shop");
}

#[tokio::test]
async fn the_only_site_need_not_be_named() {
    let mut one = config();
    one.sites.retain(|name, _| name == "blog");
    let server = start(one).await;
    server.post(r#"{"item":"a"}"#).await.expect(202);
    assert_eq!(server.log.one().site.as_str(), "blog");
    assert_eq!(server.post(r#"{"site":"nowhere","item":"a"}"#).await.expect(400).code(), "unknown_site");
    // A key is no name: it stays asked for.
    let mut one = config();
    one.sites.retain(|name, _| name == "shop");
    let server = start(one).await;
    assert_eq!(server.post(r#"{"item":"a"}"#).await.expect(400).code(), "missing_field");
}

#[tokio::test]
async fn what_is_fetched_ahead_is_marked_and_the_view_that_follows_is_not() {
    let server = start(config()).await;
    for (name, value) in [
        ("Sec-Purpose", "prefetch;prerender"),
        ("Sec-Purpose", "prefetch"),
        ("Purpose", "prefetch"),
        ("X-Moz", "prefetch"),
        ("Next-Router-Prefetch", "1"),
        ("x-purpose", "Preview"),
    ] {
        let pixel = Request::new("GET", "/v1/view.gif?site=blog&item=a").header(name, value);
        server.send(pixel).await.expect(200);
        assert!(server.log.one().facts.has(Facts::PREFETCH), "{name}: {value}");
        server.send(post(VIEW).header(name, value)).await.expect(202);
        assert!(server.log.one().facts.has(Facts::PREFETCH), "{name}: {value}");
    }
    for (name, value) in [("Purpose", "none"), ("Sec-Purpose", "prefetched"), ("Next-Router-Prefetch", "0")] {
        server.send(post(VIEW).header(name, value)).await.expect(202);
        assert_eq!(server.log.one().facts, NOTHING, "{name}: {value}");
    }
}

#[tokio::test]
async fn a_pixel_is_counted_once_it_is_in_the_log() {
    let server = start(config()).await;
    let answer =
        server.get("/v1/view.gif?site=blog&item=%2F%C3%BCber+uns&id=p-1&referrer=r").await.expect(200);
    assert_eq!(answer.header("content-type"), Some("image/gif"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!((answer.body.len(), &answer.body[..6]), (43, &b"GIF89a"[..]));
    let view = server.log.one();
    assert_eq!((view.item.as_str(), view.referrer.as_deref()), ("/über uns", Some("r")));
    assert_eq!(view.client_id.unwrap().as_str(), "p-1");
}

#[tokio::test]
async fn who_asks_for_the_pixels_size_or_a_part_of_it_does_not_look() {
    let server = start(config()).await;
    let path = "/v1/view.gif?site=blog&item=a";
    let head = server.connect().await;
    let mut head = head;
    head.write(&Request::new("HEAD", path).header("Connection", "close").bytes()).await;
    let bytes = String::from_utf8(head.rest().await).unwrap().to_lowercase();
    assert!(bytes.starts_with("http/1.1 200") && bytes.contains("content-length: 43\r\n"), "{bytes}");
    assert!(bytes.ends_with("\r\n\r\n"), "HEAD has no body: {bytes}");
    for range in ["bytes=0-", "bytes=20-42"] {
        let answer = server.send(Request::new("GET", path).header("Range", range)).await.expect(200);
        assert_eq!(answer.body.len(), 43);
    }
    assert_eq!(server.log.take(), []);
}

#[tokio::test]
async fn a_pixel_has_the_same_limits() {
    let server = start(config()).await;
    let code = async |query: &str| server.get(&format!("/v1/view.gif?{query}")).await.expect(400).code();
    assert_eq!(code("site=blog").await, "missing_field");
    assert_eq!(code("site=blog&item=undefined").await, "invalid_id");
    assert_eq!(code("site=blog&item=%FF").await, "invalid_id");
    assert_eq!(code("site=blog&item=a%00b").await, "invalid_id");
    assert_eq!(code(&format!("site=blog&item={}", "a".repeat(1025))).await, "invalid_id");
    assert_eq!(code("").await, "missing_field");
    let told = server.get("/v1/view.gif?site=blog&item=a&viewer=ada").await.expect(403);
    assert_eq!(told.code(), "trusted_only");
    assert_eq!(server.log.take(), []);
    assert_eq!(server.metric(r#"onlooker_collector_rejected_total{code="invalid_id"}"#), 4.0);
}

#[tokio::test]
async fn other_paths_and_methods_say_so() {
    let server = start(config()).await;
    assert_eq!(server.get("/v1/nothing").await.expect(404).code(), "not_found");
    let answer = server.get("/v1/views").await.expect(405);
    assert_eq!(
        (answer.code().as_str(), answer.header("allow")),
        ("method_not_allowed", Some("post, options"))
    );
    let answer = server.send(Request::new("POST", "/v1/view.gif?site=blog&item=a")).await.expect(405);
    assert_eq!(answer.header("allow"), Some("get, head, options"));
    assert_eq!(server.log.take(), []);
}

#[test]
fn no_path_has_a_word_that_block_lists_look_for() {
    let source = include_str!("../../src/door.rs");
    let paths: Vec<&str> = source.split('"').filter(|text| text.starts_with("/v")).collect();
    assert_eq!(paths, ["/v1/views", "/v1/view.gif", "/v1/view.js"]);
    for word in ["analytics", "collect", "track", "pixel", "beacon", "stats", "event", "count.js"] {
        assert!(paths.iter().all(|path| !path.contains(word)), "{word}");
    }
}
