//! The script that pages load.

use crate::support::{Request, config, start};

#[tokio::test]
async fn a_page_loads_the_script_once_and_from_anywhere() {
    let server = start(config()).await;
    let page = "https://blog.example.com";
    let answer = server.send(Request::new("GET", "/v1/view.js").header("Origin", page)).await.expect(200);
    assert_eq!(answer.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert_eq!(answer.header("cross-origin-resource-policy"), Some("cross-origin"));
    // What a tag with `integrity` needs, since it has to say `crossorigin` as well.
    assert_eq!(answer.header("access-control-allow-origin"), Some(page));
    assert_eq!(answer.header("vary"), Some("origin"));
    assert!(answer.header("cache-control").is_some_and(|told| told.contains("max-age=3600")), "{answer:?}");
    assert!(answer.body.starts_with(b"\"use strict\""), "{answer:?}");
    let tag = answer.header("etag").unwrap().to_owned();
    let again = Request::new("GET", "/v1/view.js").header("If-None-Match", &tag);
    let again = server.send(again).await.expect(304);
    assert_eq!((again.body.len(), again.header("etag")), (0, Some(tag.as_str())));
    server.send(Request::new("POST", "/v1/view.js")).await.expect(405);
    assert_eq!(server.log.take(), [], "who loads it has not looked yet");
}
