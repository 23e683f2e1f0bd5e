//! Holds `docs/metrics.md` to what the program really measures. With `ONLOOKER_WRITE_DOCS=1` it writes the file.

use onlooker_stage::telemetry::{Described, Kind, described_metrics};
use std::collections::BTreeSet;
use std::fmt::Write;

const HEAD: &str = "\
# Metrics

What the processes show at `/metrics` of their admin listener (`admin.listen`), in Prometheus's text format. Written by
`cargo x metrics` from the program's own help texts; a test holds it to them.

Labels are bounded: no item, viewer or address is ever one. Where only the running process knows a label's values, none are
listed: `partition` is a partition that the process owns at the moment, `server` an HTTP listener (`admin`, `collector`,
`counts_api`), `component` one of a room's parts, as in `/readyz`. A histogram has the series `_bucket`, `_sum` and `_count`.

Of moments (`…_timestamp_seconds`) the age is `time() - METRIC`: it goes on growing when the process that would report it has
stopped. Rules and a dashboard on top of these: [compose/prometheus](../compose/prometheus),
[compose/grafana](../compose/grafana), and [operations.md](operations.md#alerts).
";

/// Who measures, in the order in which a view meets them.
fn rooms() -> Vec<(&'static str, Vec<Described>)> {
    vec![
        ("Collector", onlooker_collector::described_metrics()),
        ("Filter", onlooker_filter::described_metrics()),
        ("Counter", onlooker_counter::described_metrics()),
        ("Flusher", onlooker_flusher::described_metrics()),
        ("Counts API", onlooker_counts_api::described_metrics()),
        ("The ledger: flusher, `onlooker run`", crate::ops::described_metrics()),
        ("Every process", described_metrics()),
        ("Clients of Kafka: collector, filter, counter", onlooker_kafka::described_metrics()),
        ("Clients of Redis: filter, counter, flusher, counts API", onlooker_redis::described_metrics()),
        ("The log of one machine: `onlooker run`", onlooker_embedded::log::described_metrics()),
        ("The memory of one machine: `onlooker run`", onlooker_embedded::store::described_metrics()),
    ]
}

/// What a value is, as the name says it; a name's end is a promise.
fn unit(metric: &Described) -> &'static str {
    let name = metric.name.strip_suffix("_total").unwrap_or(metric.name);
    let ends = |end: &str| name.ends_with(end);
    if ends("_timestamp_seconds") || ends("_until_seconds") || ends("_start_time_seconds") {
        "s since 1970"
    } else if ends("_seconds") {
        "s"
    } else if ends("_bytes") {
        "bytes"
    } else if ends("_offset") {
        "offset"
    } else if ["_ready", "_live", "_unavailable", "_out_of_range"].into_iter().any(ends) {
        "0 or 1"
    } else if metric.kind == Kind::Histogram {
        "things"
    } else {
        "count"
    }
}

fn labels(metric: &Described) -> String {
    let shown = metric.labels.iter().map(|(key, values)| match values.as_slice() {
        [] => format!("`{key}`"),
        values => format!("`{key}`: {}", values.join(", ")),
    });
    shown.collect::<Vec<_>>().join("; ")
}

fn document() -> String {
    let mut out = HEAD.to_owned();
    for (room, mut metrics) in rooms() {
        metrics.sort_by_key(|metric| metric.name);
        let _ = write!(out, "\n## {room}\n\n| name | type | unit | labels | help |\n|---|---|---|---|---|\n");
        for metric in metrics {
            assert!(!metric.help.contains('|'), "{} would break the table", metric.name);
            let (name, kind, help) = (metric.name, metric.kind.as_str(), metric.help);
            let _ = writeln!(out, "| `{name}` | {kind} | {} | {} | {help} |", unit(&metric), labels(&metric));
        }
    }
    out
}

#[test]
fn every_metric_is_documented_as_it_is() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
    let document = document();
    if std::env::var_os("ONLOOKER_WRITE_DOCS").is_some_and(|value| value == "1") {
        std::fs::write(path, &document).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    let differs = document.lines().zip(written.lines()).find(|(now, then)| now != then);
    assert!(document == written, "docs/metrics.md is not the program's: run cargo x metrics; {differs:#?}");
}

#[test]
fn names_follow_one_rule_and_stand_once() {
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for (room, metric) in rooms().into_iter().flat_map(|(room, all)| all.into_iter().map(move |m| (room, m)))
    {
        let ours = metric.name.starts_with("onlooker_") || metric.name.starts_with("process_");
        let total = metric.name.ends_with("_total") == (metric.kind == Kind::Counter);
        // `onlooker run` reads with one client and the cluster with another: each name has one home.
        if !ours
            || !total
            || metric.help.is_empty()
            || metric.help.ends_with('.')
            || !seen.insert(metric.name)
        {
            wrong.push((room, metric));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen.len() > 100, "{}", seen.len());
}
