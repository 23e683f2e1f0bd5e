//! Who looks: addresses behind proxies, named viewers, placeholders, and what never gets mixed up.

use crate::support::{Request, Server, config, post, start, trusted};
use onlooker_collector::{CollectorConfig, ItemMode, SiteConfig};
use onlooker_event::{Facts, ItemKey, View, ViewerHash};
use onlooker_sketch::{REGISTERS, Sketch};
use std::collections::HashSet;

const VIEW: &str = r#"{"site":"blog","item":"/a"}"#;

fn behind_proxies(proxies: &[&str]) -> CollectorConfig {
    CollectorConfig { trusted_proxies: proxies.iter().map(|p| p.parse().unwrap()).collect(), ..config() }
}

async fn viewer(server: &Server, request: Request) -> ViewerHash {
    server.send(request).await.expect(202);
    server.log.one().viewer
}

async fn forwarded(server: &Server, lines: &[&str]) -> ViewerHash {
    let request = lines.iter().fold(post(VIEW), |request, line| request.header("X-Forwarded-For", line));
    viewer(server, request).await
}

/// The viewer that a back end's view gets for this address, with no user agent.
async fn of_address(server: &Server, ip: &str) -> ViewerHash {
    viewer(server, trusted(format!(r#"{{"item":"/a","ip":"{ip}"}}"#))).await
}

#[tokio::test]
async fn viewers_behind_a_trusted_proxy_are_told_apart() {
    let server = start(behind_proxies(&["127.0.0.0/8"])).await;
    let mut viewers = HashSet::new();
    for i in 1..=5 {
        viewers.insert(forwarded(&server, &[&format!("198.51.100.{i}")]).await);
    }
    assert_eq!(viewers.len(), 5);
    assert_eq!(server.metric("onlooker_collector_xff_seen_but_untrusted_total"), 0.0);
    assert_eq!(server.metric("onlooker_collector_private_address_total"), 0.0);
}

#[tokio::test]
async fn an_untrusted_proxy_is_not_believed_and_that_shows() {
    let server = start(config()).await;
    let mut viewers = HashSet::new();
    for i in 1..=5 {
        viewers.insert(forwarded(&server, &[&format!("198.51.100.{i}")]).await);
    }
    assert_eq!(viewers, HashSet::from([of_address(&server, "127.0.0.1").await]));
    assert_eq!(server.metric("onlooker_collector_xff_seen_but_untrusted_total"), 5.0);
    assert_eq!(server.metric("onlooker_collector_private_address_total"), 5.0);
}

#[tokio::test]
async fn one_private_address_for_nearly_everybody_shows() {
    let server = start(config()).await;
    let mut client = server.connect().await;
    for _ in 0..1000 {
        client.write(&post(VIEW).bytes()).await;
        client.answer().await.expect(202);
    }
    assert_eq!(server.metric("onlooker_collector_crowded_address_total"), 1.0);
}

#[tokio::test]
async fn x_forwarded_for_is_walked_from_the_right() {
    let chain = "198.51.100.7, 203.0.113.9";
    for (proxies, client) in [
        (&[][..], "127.0.0.1"),
        (&["127.0.0.0/8"], "203.0.113.9"),
        (&["127.0.0.0/8", "203.0.113.0/24"], "198.51.100.7"),
    ] {
        let server = start(behind_proxies(proxies)).await;
        let expected = of_address(&server, client).await;
        assert_eq!(forwarded(&server, &[chain]).await, expected, "{proxies:?}");
        assert_eq!(forwarded(&server, &["198.51.100.7", "203.0.113.9"]).await, expected, "two lines are one");
        let spoofed = format!("192.0.2.66, {chain}");
        assert_eq!(forwarded(&server, &[&spoofed]).await, expected, "what is put in front changes nothing");
        assert_eq!(forwarded(&server, &["192.0.2.66", chain]).await, expected);
    }
}

#[tokio::test]
async fn another_users_agent_is_another_viewer_and_none_is_a_dash() {
    let server = start(config()).await;
    let with = async |agent: &str| viewer(&server, post(VIEW).header("User-Agent", agent)).await;
    let (a, b, none) = (with("a").await, with("b").await, viewer(&server, post(VIEW)).await);
    assert_eq!(HashSet::from([a, b, none]).len(), 3);
    assert_eq!(with("-").await, none);
    assert_eq!(with("").await, none);
}

#[tokio::test]
async fn an_import_gives_the_identity_of_the_live_request() {
    let server = start(behind_proxies(&["127.0.0.0/8"])).await;
    for agent in ["Mozilla/5.0 (X11)", "-", ""] {
        for ip in ["198.51.100.7", "2001:db8:1:2::1", "::ffff:198.51.100.8"] {
            let live = post(VIEW).header("X-Forwarded-For", ip).header("User-Agent", agent);
            let live = viewer(&server, live).await;
            let import = trusted(format!(r#"{{"item":"/a","ip":"{ip}","ua":"{agent}"}}"#));
            assert_eq!(viewer(&server, import.header("User-Agent", "curl/8")).await, live, "{ip} {agent}");
        }
    }
    let without = viewer(&server, trusted(r#"{"item":"/a","ip":"198.51.100.7"}"#)).await;
    assert_eq!(without, viewer(&server, trusted(r#"{"item":"/a","ip":"198.51.100.7","ua":"-"}"#)).await);
}

#[tokio::test]
async fn a_home_is_one_viewer() {
    let server = start(config()).await;
    let one = of_address(&server, "2001:db8:1:2::1").await;
    assert_eq!(of_address(&server, "2001:db8:1:2:ffff:ffff:ffff:ffff").await, one);
    assert_ne!(of_address(&server, "2001:db8:1:3::1").await, one);
}

#[tokio::test]
async fn neither_address_nor_name_is_in_the_record() {
    let server = start(config()).await;
    let body = r#"{"item":"/a","viewer":"ada@example.com","ip":"198.51.100.77","ua":"UA/1","owner":"bob"}"#;
    server.send(trusted(body).header("Referer", "https://intranet.example/ada")).await.expect(202);
    let view = server.log.one();
    let shown = format!("{view:?}");
    assert!(!shown.contains("ada") && !shown.contains("198.51") && !shown.contains("bob"), "{shown}");
    assert_eq!((view.user_agent.as_deref(), view.facts), (Some("UA/1"), Facts::TRUSTED));
}

#[tokio::test]
async fn what_scripts_write_for_nobody_is_never_a_person() {
    let server = start(config()).await;
    let address = of_address(&server, "198.51.100.7").await;
    for nobody in [
        "\"undefined\"",
        "\"null\"",
        r#""\"null\"""#,
        "\"None\"",
        "\"none\"",
        "\"NaN\"",
        "\"0\"",
        "0",
        "\"\"",
        "\"   \"",
        "\"[object Object]\"",
        "\"true\"",
        "\"false\"",
        "\"guest\"",
        "\"a\\ud83d\"",
    ] {
        let view = format!(r#"{{"item":"/a","viewer":{nobody},"ip":"198.51.100.7"}}"#);
        server.send(trusted(view)).await.expect(202);
        let view = server.log.one();
        assert_eq!(view.viewer, address, "{nobody}");
        assert_eq!(view.facts, Facts::TRUSTED.with(Facts::BAD_VIEWER), "{nobody}");
        let alone = format!(r#"{{"item":"/a","viewer":{nobody}}}"#);
        assert_eq!(server.send(trusted(alone)).await.expect(400).code(), "invalid_viewer", "{nobody}");
    }
    assert_eq!(server.metric("onlooker_collector_bad_viewer_total"), 15.0);
    server.send(trusted(r#"{"item":"/a","viewer":null,"ip":"198.51.100.7"}"#)).await.expect(202);
    assert_eq!((server.log.one().facts, address), (Facts::TRUSTED, address), "null is as good as absent");
    for other in ["true", "false", "[]", "{}", "1e3", "1.0"] {
        let view = format!(r#"{{"item":"/a","viewer":{other},"ip":"198.51.100.7"}}"#);
        assert_eq!(server.send(trusted(view)).await.expect(400).code(), "id_must_be_string", "{other}");
    }
    assert_eq!(server.send(trusted(r#"{"item":"/a"}"#)).await.expect(400).code(), "missing_field");
}

#[tokio::test]
async fn what_scripts_write_for_nothing_is_no_item() {
    let server = start(config()).await;
    let code = async |item: &str| {
        server.post(&format!(r#"{{"site":"blog","item":{item}}}"#)).await.expect(400).code()
    };
    for nothing in [
        "\"undefined\"",
        "\"null\"",
        r#""\"null\"""#,
        "\"None\"",
        "\"NaN\"",
        "\"\"",
        "\"   \"",
        "\"[object Object]\"",
        "\"true\"",
        "\"[]\"",
    ] {
        assert_eq!(code(nothing).await, "invalid_id", "{nothing}");
    }
    for other in ["true", "false", "[]", "{}", "1161888007138312192", "9007199254740993", "1e3", "1.0", "-0"]
    {
        assert_eq!(code(other).await, "id_must_be_string", "{other}");
    }
    assert_eq!(code("null").await, "missing_field");
    assert_eq!(code("0123").await, "malformed");
    for (item, stored) in
        [("123", "123"), ("9007199254740991", "9007199254740991"), ("0", "0"), ("\"0123\"", "0123")]
    {
        server.post(&format!(r#"{{"site":"blog","item":{item}}}"#)).await.expect(202);
        assert_eq!(
            server.log.one().item.as_str(),
            stored,
            "a number equals its digits, other spellings do not"
        );
    }
}

#[tokio::test]
async fn a_number_is_the_viewer_of_its_digits() {
    let server = start(config()).await;
    let named = async |viewer_json: &str| {
        viewer(&server, trusted(format!(r#"{{"item":"/a","viewer":{viewer_json}}}"#))).await
    };
    assert_eq!(named("42").await, named("\"42\"").await);
    assert_ne!(named("42").await, named("\"042\"").await);
}

#[tokio::test]
async fn parts_of_an_identity_are_not_joined_ambiguously() {
    let server = start(config()).await;
    let alphabet = ["a", "{", "}", ":", "1"];
    let mut words: Vec<String> = alphabet.iter().map(|c| (*c).to_owned()).collect();
    for _ in 0..2 {
        let longer: Vec<_> =
            words.iter().flat_map(|w| alphabet.iter().map(move |c| format!("{w}{c}"))).collect();
        words.extend(longer);
    }
    words.sort();
    words.dedup();
    let views: Vec<_> = words
        .iter()
        .flat_map(|w| (0..w.len()).map(move |cut| w.split_at(cut)))
        .filter(|(item, viewer)| !item.is_empty() && *item != "{}" && *viewer != "{}")
        .map(|(item, viewer)| format!(r#"{{"item":"{item}","viewer":"{viewer}"}}"#))
        .collect();
    let distinct: HashSet<_> = views.iter().collect();
    for chunk in views.chunks(1000) {
        server.send(trusted(chunk.join("\n"))).await.expect(202);
    }
    let pair = |v: &View| (ItemKey::new(&v.site, &v.item), v.viewer);
    let pairs: HashSet<_> = server.log.take().iter().map(pair).collect();
    assert_eq!(pairs.len(), distinct.len(), "(a:b, c) and (a, b:c) are two views");
}

#[tokio::test]
async fn the_next_user_of_a_device_is_somebody_else() {
    let server = start(behind_proxies(&["127.0.0.0/8"])).await;
    let seen = async |name: &str| {
        let view = format!(r#"{{"item":"/a","ip":"198.51.100.7","ua":"UA"{name}}}"#);
        viewer(&server, trusted(view)).await
    };
    let (ada, out, bob) =
        (seen(r#","viewer":"ada""#).await, seen("").await, seen(r#","viewer":"bob""#).await);
    assert_eq!(HashSet::from([ada, out, bob]).len(), 3, "nothing links an address to a name");
    assert_eq!(seen(r#","viewer":"ada""#).await, ada);
}

#[tokio::test]
async fn all_collectors_with_one_key_agree_on_every_day() {
    let (one, two) = (start(config()).await, start(config()).await);
    let at = |time: &str| format!(r#"{{"item":"/a","ip":"198.51.100.7","ua":"UA","at":"{time}"}}"#);
    let late = viewer(&one, trusted(at("2024-05-01T23:59:50Z"))).await;
    assert_eq!(viewer(&two, trusted(at("2024-05-02T00:00:10Z"))).await, late, "midnight changes nobody");
    let mut other = config();
    other.identity.secret = onlooker_ports::Secret::new("cd".repeat(32));
    assert_ne!(viewer(&start(other).await, trusted(at("2024-05-02T00:00:10Z"))).await, late);
}

#[tokio::test]
async fn chosen_ids_do_not_bend_a_sketch() {
    // Names that all speak to the same 16 registers: as members they would count as 16 people.
    let registers = REGISTERS as u64;
    let chosen: Vec<String> = (0..)
        .map(|i| format!("v{i}"))
        .filter(|name| onlooker_sketch::hash(name.as_bytes()) % registers < 16)
        .take(500)
        .collect();
    let estimate = |members: &mut dyn Iterator<Item = Vec<u8>>| {
        let mut sketch = Sketch::new();
        members.for_each(|member| {
            sketch.add(&member);
        });
        sketch.count()
    };
    let raw = estimate(&mut chosen.iter().map(|name| name.clone().into_bytes()));
    let server = start(config()).await;
    let views: Vec<_> = chosen.iter().map(|name| format!(r#"{{"item":"/a","viewer":"{name}"}}"#)).collect();
    server.send(trusted(views.join("\n"))).await.expect(202);
    let kept = estimate(&mut server.log.take().into_iter().map(|view| view.viewer.0.to_vec()));
    assert!((485..=515).contains(&kept), "{kept} of 500");
    assert!(raw <= 20, "the names were not chosen well enough to show anything: {raw}");
}

#[tokio::test]
async fn only_a_token_may_say_who_and_when() {
    let server = start(config()).await;
    for (field, value) in [
        ("viewer", "\"ada\""),
        ("ip", "\"198.51.100.7\""),
        ("ua", "\"x\""),
        ("at", "1700000000000"),
        ("owner", "1"),
    ] {
        let view = format!(r#"{{"site":"blog","item":"/a","{field}":{value}}}"#);
        let answer = server.post(&view).await.expect(403);
        assert_eq!(
            (answer.code().as_str(), answer.json()["error"]["field"].as_str()),
            ("trusted_only", Some(field))
        );
        let batch = server.post(&format!("[{VIEW},{view}]")).await.expect(202);
        assert_eq!(batch.outcomes(), ["accepted", "trusted_only"]);
        server.send(post(format!(r#"{{"site":"blog","item":"/a","{field}":null}}"#))).await.expect(202);
    }
    let with = |value: &str| post(VIEW).header("Authorization", value);
    assert_eq!(server.send(with("Bearer wrong-token-0123456789")).await.expect(401).code(), "unknown_token");
    assert_eq!(server.send(with("Bearer ")).await.expect(401).code(), "unknown_token");
    server.send(with("Basic dXNlcjpwYXNz")).await.expect(202);
    let wrong_site = post(r#"{"site":"shop","item":"/a","viewer":"ada"}"#)
        .header("authorization", "bearer blog-token-0123456789");
    assert_eq!(server.send(wrong_site).await.expect(403).code(), "wrong_site");
    let shop = post(r#"{"site":"shop","item":"/a","viewer":"ada"}"#)
        .header("Authorization", "Bearer shop-token-0123456789")
        .header("Origin", "https://somewhere.example");
    server.send(shop).await.expect(202);
    let invalid = trusted(r#"{"item":"/a","ip":"localhost"}"#);
    assert_eq!(server.send(invalid).await.expect(400).code(), "invalid_ip");
}

#[tokio::test]
async fn an_owner_who_looks_at_their_own_item_is_marked() {
    let server = start(config()).await;
    for (viewer, owner, own) in
        [("7", "\"7\"", true), ("\"ada\"", "\"ada\"", true), ("\"ada\"", "\"bob\"", false)]
    {
        server
            .send(trusted(format!(r#"{{"item":"/a","viewer":{viewer},"owner":{owner}}}"#)))
            .await
            .expect(202);
        assert_eq!(server.log.one().facts.has(Facts::SELF_VIEW), own, "{viewer} {owner}");
    }
    let nobody = r#"{"item":"/a","viewer":"undefined","owner":"undefined","ip":"198.51.100.7"}"#;
    server.send(trusted(nobody)).await.expect(202);
    assert!(!server.log.one().facts.has(Facts::SELF_VIEW));
}

#[tokio::test]
async fn a_session_identifies_only_where_the_site_says_so() {
    let mut config = config();
    let sessions = SiteConfig { sessions: true, ..SiteConfig::default() };
    config.sites.insert("app".into(), sessions);
    let server = start(config).await;
    let seen = async |site: &str, session: &str| {
        let view = format!(r#"{{"site":"{site}","item":"/a","session":"{session}"}}"#);
        server.post(&view).await.expect(202);
        server.log.one()
    };
    assert_eq!(seen("blog", "s-1").await.viewer, seen("blog", "s-2").await.viewer);
    assert_ne!(seen("app", "s-1").await.viewer, seen("app", "s-2").await.viewer);
    let (bad, none) = (seen("app", "undefined").await, seen("app", "  ").await);
    assert_eq!((bad.viewer, bad.facts), (none.viewer, Facts::BAD_VIEWER));
}

#[tokio::test]
async fn spellings_of_a_path_are_one_item_where_items_are_urls() {
    let mut config = config();
    config.sites.insert("paths".into(), SiteConfig { items: ItemMode::Url, ..SiteConfig::default() });
    let server = start(config).await;
    let spellings = ["/%C3%BCber", "/%c3%bcber", "/\u{fc}ber", "/u%CC%88ber", "/u\u{308}ber"];
    let stored = async |site: &str| {
        let mut items = HashSet::new();
        for spelling in spellings {
            server.post(&format!(r#"{{"site":"{site}","item":"{spelling}"}}"#)).await.expect(202);
            items.insert(server.log.one().item.as_str().to_owned());
        }
        items
    };
    assert_eq!(stored("paths").await, HashSet::from(["/\u{fc}ber".to_owned()]));
    assert_eq!(stored("blog").await.len(), spellings.len(), "an opaque id is left alone");
}
