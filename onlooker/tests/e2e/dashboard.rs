//! What people look at: every query of the dashboard and every rule, asked of a real Prometheus that scrapes a real run.

use crate::support::{Http, LONG, Role, System, Wishes, view};
use onlooker_testkit::install;
use onlooker_testkit::java::workspace;
use onlooker_testkit::ports::free_port;
use onlooker_testkit::prometheus::PrometheusServer;
use onlooker_testkit::wait_for;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

/// Rightly nothing on a system that is well and has run for a minute, by what stands in the query.
const QUIET: [(&str, &str); 3] =
    [("ALERTS", "no alarm"), ("offset 1d", "there is no yesterday"), ("offset 2d", "nor the day before")];

fn is_quiet(query: &str) -> bool {
    QUIET.iter().any(|(part, _)| query.contains(part))
}

fn dashboard() -> Value {
    let path = workspace().join("compose/grafana/dashboards/onlooker.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The queries of all panels, as Grafana sends them.
fn queries(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let written = targets.map(|target| target["expr"].as_str().unwrap());
    written.map(|query| query.replace("$__rate_interval", "1m").replace("$job", ".+")).collect()
}

/// What has to be there for an alarm to be raised at all: its comparisons without what they compare with.
fn sides(alarm: &str) -> Vec<String> {
    let comparison = [" > ", " < ", " == ", " != "];
    let side = |part: &str| {
        let at = comparison.iter().filter_map(|sign| part.rfind(sign)).max();
        part[..at.expect("a comparison")].trim().to_owned()
    };
    alarm.split(" and on (job) ").map(side).collect()
}

struct Asked {
    prometheus: PrometheusServer,
}

impl Asked {
    fn series(&self, query: &str) -> usize {
        let answer = self.prometheus.query(query).unwrap_or_else(|error| panic!("{error:#}"));
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["data"]["result"].as_array().unwrap().len()
    }

    /// Waits until each has a series.
    fn have_series(&self, queries: &[String]) {
        let mut waiting: Vec<&String> = queries.iter().collect();
        let waited = wait_for("all queries to have series", LONG, || {
            waiting.retain(|query| self.series(query) == 0);
            waiting.is_empty().then_some(())
        });
        waited.unwrap_or_else(|error| panic!("{error}: {waiting:#?}"));
    }

    fn rules(&self) -> Vec<Value> {
        let answer: Value = serde_json::from_str(&self.prometheus.ask("/api/v1/rules").unwrap()).unwrap();
        let groups = answer["data"]["groups"].as_array().unwrap();
        groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
    }
}

/// Views, some of them repeats, and reads, without end.
async fn traffic(doors: Vec<Http>) {
    for round in 0_u64.. {
        let batch: Vec<Value> = (0..40)
            .map(|n| view(&format!("item{}", (round + n) % 50), &format!("viewer{}", round / 2 + n)))
            .collect();
        for http in &doors {
            http.send(&batch).await;
            http.counts(&["item1", "item2", "nobody-saw-it"]).await;
        }
    }
}

/// Names on a page, and that Prometheus's own linter likes it.
fn check_page(role: &Role) -> BTreeSet<String> {
    let page = role.admin_text("metrics").unwrap();
    let mut lint = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    lint.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = lint.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // A room's name is no type.
    let faults: Vec<&str> = said.lines().filter(|line| !line.contains("type 'counter'")).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    let helps = page.lines().filter_map(|line| line.strip_prefix("# HELP "));
    helps.filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_and_every_rule_finds_what_it_asks_for() {
    let system = System::start(Wishes::default());
    // How full it is can be said only of one that has a limit.
    system.dedup.cli(&["CONFIG", "SET", "maxmemory", "200mb"]).unwrap();
    let mut roles: Vec<(&str, Role)> = ["collector", "filter", "counter", "flusher", "counts-api"]
        .into_iter()
        .zip(system.all_roles())
        .collect();
    // Beside the cluster, one machine: it has metrics of its own.
    let port = free_port().unwrap();
    let listen = format!("collector.listen=127.0.0.1:{port}");
    let folder = system.folder.path().join("alone").display().to_string();
    let alone = Role::launch(&system, "run", &["--dir", &folder, "--set", &listen]);
    alone.wait_ready();
    roles.push(("run", alone));

    let targets: Vec<(&str, String)> = roles.iter().map(|(room, role)| (*room, role.admin())).collect();
    let rules = workspace().join("compose/prometheus/rules.yaml");
    let asked = Asked { prometheus: PrometheusServer::start(&targets, &rules).unwrap() };
    let one = format!("http://127.0.0.1:{port}");
    let busy = tokio::spawn(traffic(vec![system.http(), Http::new(one.clone(), one)]));

    let all = queries(&dashboard());
    assert!(all.len() > 50, "{}", all.len());
    let (quiet, loud): (Vec<String>, Vec<String>) = all.into_iter().partition(|query| is_quiet(query));
    tokio::task::block_in_place(|| {
        asked.have_series(&loud);
        // They are valid all the same, and the list names no more than there is.
        quiet.iter().for_each(|query| _ = asked.series(query));
        let rules = asked.rules();
        for rule in &rules {
            assert_eq!(rule["health"], "ok", "{rule}");
            let query = rule["query"].as_str().unwrap();
            let wanted = if rule["type"] == "recording" { vec![query.to_owned()] } else { sides(query) };
            let (quiet, loud): (Vec<String>, Vec<String>) =
                wanted.into_iter().partition(|query| is_quiet(query));
            asked.have_series(&loud);
            quiet.iter().for_each(|query| _ = asked.series(query));
            // The system is well.
            assert_ne!(rule["state"], "firing", "{rule}");
        }
        assert!(rules.len() > 25, "{}", rules.len());
    });

    // Who stands still says nothing about it, and grows old all the same. (One machine has partitions 0 and 1 too, and of
    // two owners the one that is further counts.)
    let still: Vec<&Role> =
        roles.iter().filter(|(room, _)| ["filter", "flusher"].contains(room)).map(|(_, role)| role).collect();
    let old = [
        "onlooker:lag_age_seconds{group=\"filter\",partition=\"3\"}",
        "onlooker:flush_age_seconds{partition=\"3\"}",
    ];
    let over = |limit| old.map(|age| format!("{age} > {limit}")).to_vec();
    let under = |limit| old.map(|age| format!("{age} < {limit}")).to_vec();
    tokio::task::block_in_place(|| {
        asked.have_series(&under(15));
        still.iter().for_each(|role| role.signal(libc::SIGSTOP));
        asked.have_series(&over(20));
        still.iter().for_each(|role| role.signal(libc::SIGCONT));
        asked.have_series(&under(15));
        asked.have_series(&["onlooker:durable_age_seconds{partition=\"3\"} < 90".to_owned()]);
    });

    install::ensure(&[install::PROMTOOL]).unwrap();
    let documented = std::fs::read_to_string(workspace().join("docs/metrics.md")).unwrap();
    let shown: BTreeSet<String> = roles.iter().flat_map(|(_, role)| check_page(role)).collect();
    let unknown: Vec<_> =
        shown.iter().filter(|name| !documented.contains(&format!("| `{name}` |"))).collect();
    assert!(unknown.is_empty(), "shown, and not in docs/metrics.md: {unknown:?}");
    assert!(!busy.is_finished(), "traffic went well until the end");
    busy.abort();
}

#[test]
fn the_dashboard_is_whole() {
    let dashboard = dashboard();
    assert_eq!(dashboard["uid"], "onlooker");
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "a panel's id stands twice");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert!(!panel["title"].as_str().unwrap().is_empty());
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            assert!(query.contains("job=~\"$job\""), "it mixes installations: {query}");
            assert!(
                !query.contains("[1m]") && !query.contains("[5m]"),
                "Grafana knows the interval: {query}"
            );
        }
    }
}
