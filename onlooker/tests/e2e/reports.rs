//! What people have reported of systems like this one, tried on the whole of it: views that are sent ahead, again or
//! later, and a Redis that somebody else writes to or that falls back.

use crate::support::{LONG, Ledger, Role, System, Wishes, view};
use onlooker_sketch::Sketch;
use onlooker_testkit::{wait_until, wait_until_async};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};

/// Outcomes in the log: counted, and ignored by reason.
fn outcomes(system: &System, views: usize) -> BTreeMap<String, usize> {
    let log = system.log();
    wait_until("every view to have an outcome", LONG, || {
        log.records("views.counted").len() + log.records("views.ignored").len() >= views
    })
    .unwrap();
    let mut by_name = BTreeMap::from([("counted".to_owned(), log.counted().len())]);
    for ignored in log.ignored() {
        *by_name.entry(ignored.reason.as_str().to_owned()).or_default() += 1;
    }
    by_name
}

fn named<const N: usize>(outcomes: [(&str, usize); N]) -> BTreeMap<String, usize> {
    outcomes.into_iter().map(|(name, n)| (name.to_owned(), n)).collect()
}

async fn wait_views(system: &System, item: &str, views: u64) {
    let http = system.http();
    wait_until_async(&format!("{views} views of {item}"), LONG, || async {
        http.counts(&[item]).await[0]["views"] == views
    })
    .await
    .unwrap();
}

fn crowd(item: &str, viewers: std::ops::Range<usize>) -> Vec<Value> {
    viewers.map(|v| view(item, &format!("viewer {v}"))).collect()
}

fn milliseconds_ago(seconds: i64) -> i64 {
    jiff::Timestamp::now().as_millisecond() - seconds * 1000
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_fetched_ahead_counts_once_somebody_looks() {
    let system = System::start(Wishes::default());
    let _roles = [system.role("collector"), system.role("filter")];
    let _ = rustls::crypto::ring::default_provider().install_default();
    let browser = reqwest::Client::builder().user_agent("a browser").build().unwrap();
    let pixel = |item: &str| format!("{}/v1/view.gif?site=blog&item={item}", system.collector_url());
    let ahead = [
        ("Sec-Purpose", "prefetch;prerender"),
        ("Sec-Purpose", "prefetch"),
        ("Purpose", "prefetch"),
        ("X-Moz", "prefetch"),
        ("Next-Router-Prefetch", "1"),
    ];
    for (name, value) in ahead {
        for item in ["looked-at", "never"] {
            let answer = browser.get(pixel(item)).header(name, value).send().await.unwrap();
            assert_eq!(answer.status(), 200);
        }
    }
    let beacon = browser.post(format!("{}/v1/views", system.collector_url()));
    let beacon = beacon.body(r#"{"site":"blog","item":"looked-at"}"#).send().await.unwrap();
    assert_eq!(beacon.status(), 202);
    assert_eq!(outcomes(&system, 11), named([("counted", 1), ("prefetch", 10)]));
    assert_eq!(&*system.log().counted()[0].1.item.to_string(), "looked-at");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_back_counts_again_after_the_window() {
    let system = System::start(Wishes::default());
    let _roles = system.all_roles();
    let http = system.http();
    // A page, ten reloads within a minute and one from the browser's cache, and a visit after the window.
    let first = milliseconds_ago(3 * 3600);
    let seconds = (0..=10).map(|n| n * 6).chain([40, 1_800]);
    let visits: Vec<_> = seconds
        .map(|after| {
            let mut visit = view("page", "reader");
            visit["at"] = json!(first + after * 1000);
            visit
        })
        .collect();
    for visit in &visits {
        http.send(std::slice::from_ref(visit)).await;
    }
    assert_eq!(outcomes(&system, visits.len()), named([("counted", 2), ("recent_view", 11)]));
    wait_views(&system, "page", 2).await;
    assert_eq!(http.counts(&["page"]).await[0]["uniques"], 1, "views are not viewers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_sent_again_counts_once() {
    let system = System::start(Wishes::default());
    let _roles = [system.role("collector"), system.role("filter")];
    let http = system.http();
    let with_id = |item: &str, id: &str, seconds_ago: i64| {
        let mut v = view(item, "reader");
        (v["id"], v["at"]) = (json!(id), json!(milliseconds_ago(seconds_ago)));
        v
    };
    // Kept by the page until it is acknowledged, and sent again hours later: no window can tell.
    let hidden = |ago| [with_id("a", "1", ago), with_id("b", "2", ago), with_id("c", "3", ago)];
    http.send(&hidden(9_000)).await;
    http.send(&hidden(3)).await;
    http.send(&[with_id("d", "4", 3)]).await;
    // An id that two items share is judged for each of them.
    http.send(&[with_id("e", "1", 3)]).await;
    assert_eq!(outcomes(&system, 8), named([("counted", 5), ("duplicate_id", 3)]));
}

/// Everything that a Redis holds, as it is.
type State = Vec<(Vec<u8>, i64, Vec<u8>)>;

fn state_of(url: &str) -> State {
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let mut state = Vec::new();
    for key in keys {
        let one = redis::pipe().cmd("PTTL").arg(&key).cmd("DUMP").arg(&key).query(&mut connection);
        let (ttl, content): (i64, Option<Vec<u8>>) = one.unwrap();
        // One that expired between the two commands was about to go.
        state.extend(content.map(|content| (key, ttl.max(0), content)));
    }
    state
}

/// What a failover to a replica that lags behind does: everything is as it was.
fn fall_back(url: &str, state: &State) {
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    let mut all = redis::pipe();
    all.atomic().cmd("FLUSHALL").ignore();
    for (key, ttl, content) in state {
        all.cmd("RESTORE").arg(key).arg(*ttl).arg(content).ignore();
    }
    all.exec(&mut connection).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_falls_back_changes_nothing() {
    let config = "[flusher]\ninterval_ms = 500\n".to_owned();
    let system = System::start(Wishes { config, ..Wishes::default() });
    let _roles = ["collector", "filter", "counter", "counts-api"].map(|role| system.role(role));
    let http = system.http();
    let items = ["a", "b", "c", "d", "e"];
    let send = async |viewers: std::ops::Range<usize>| {
        for item in items {
            http.send(&crowd(item, viewers.clone())).await;
        }
    };
    let all = async |views: u64| {
        for item in items {
            wait_views(&system, item, views).await;
        }
    };
    send(0..100).await;
    all(100).await;
    let (dedup, counters) = (state_of(&system.dedup.url()), state_of(&system.counters.url()));
    let _flusher = system.role("flusher");
    send(100..300).await;
    all(300).await;
    // First with all of it archived, then with new views that are not.
    Ledger::check_counts(&system).await;
    for last in [350, 400] {
        fall_back(&system.dedup.url(), &dedup);
        fall_back(&system.counters.url(), &counters);
        // Those whose claims are forgotten come again, with some new ones.
        send(150..last).await;
        Ledger::check(&system, &HashSet::new());
        all(last as u64).await;
    }
    Ledger::check_counts(&system).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sketch_that_somebody_overwrote_comes_back_whole() {
    let config = "[flusher]\ninterval_ms = 500\n".to_owned();
    let system = System::start(Wishes { config, ..Wishes::default() });
    let roles = system.all_roles();
    let flusher = &roles[3];
    let http = system.http();
    for item in ["junk", "text", "good"] {
        http.send(&crowd(item, 0..200)).await;
        wait_views(&system, item, 200).await;
    }
    Ledger::check_counts(&system).await;
    let eyes = system.counters_eyes();
    let key_of = |item: &str| {
        let ending = format!("}}:*:blog:{item}");
        eyes.keys().into_iter().find(|key| key.starts_with("sketch:") && key.ends_with(&ending)).unwrap()
    };
    for item in ["junk", "text"] {
        wait_until("the sketch to be clean", LONG, || eyes.ttl(&key_of(item)) > 0).unwrap();
    }
    // The one still is a sketch to PFADD, and none to PFCOUNT once a member was added; the other is none at all.
    eyes.command(&["APPEND", &key_of("junk"), "junk"]);
    eyes.command(&["SET", &key_of("text"), "text"]);
    let counts = http.counts(&["junk", "text"]).await;
    assert_eq!((&counts[0]["uniques"], &counts[0]["views"]), (&json!(200), &json!(200)), "the last good one");
    assert_eq!((&counts[1]["status"], &counts[1]["views"]), (&json!("repairing"), &json!(200)));
    // Every item's views go on, and nothing damaged is archived.
    for item in ["junk", "text", "good"] {
        http.send(&crowd(item, 200..300)).await;
    }
    for item in ["junk", "text", "good"] {
        wait_views(&system, item, 300).await;
    }
    for count in http.counts(&["junk", "text"]).await {
        assert_eq!((&count["status"], &count["uniques"]), (&json!("repairing"), &Value::Null), "{count}");
    }
    wait_until("the flusher to say so", LONG, || flusher.admin_status("readyz") == Some(503)).unwrap();
    for (key, row) in system.archive().await.rows().await {
        let archived = row.blob.map(|(bytes, _)| Sketch::from_redis(&bytes).map(|_| ()));
        assert_eq!(archived, Some(Ok(())), "{key}");
    }
    // The cure that the log lines name.
    eyes.flush_all();
    for item in ["junk", "text", "good"] {
        wait_views(&system, item, 300).await;
    }
    Ledger::check_counts(&system).await;
    roles.iter().for_each(Role::wait_ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn lag_is_shown_by_the_owner_of_a_partition_alone() {
    let system = System::start(Wishes::default());
    let shown = |role: &Role, name: &str| -> HashSet<String> {
        let page = role.admin_text("metrics").unwrap_or_default();
        let lines = page.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        lines.filter_map(|line| Some(line.split_once("} ")?.0.to_owned())).collect()
    };
    let _collector = system.role("collector");
    for (name, metric) in
        [("filter", "onlooker_filter_lag_records"), ("counter", "onlooker_counter_lag_offsets")]
    {
        let first = system.role(name);
        wait_until("all partitions", LONG, || shown(&first, metric).len() == 4).unwrap();
        let second = system.role(name);
        wait_until("each partition once", LONG, || {
            let (a, b) = (shown(&first, metric), shown(&second, metric));
            a.len() == 2 && b.len() == 2 && a.is_disjoint(&b)
        })
        .unwrap();
        first.kill();
        wait_until("all partitions again", LONG, || shown(&second, metric).len() == 4).unwrap();
    }
}
