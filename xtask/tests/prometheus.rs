//! What stands in `compose/prometheus` is right: by Prometheus's own tool, and by what the documents promise.
#![allow(clippy::unwrap_used, missing_docs)]

use onlooker_testkit::install;
use onlooker_testkit::java::workspace;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

fn promtool(arguments: &[&str]) {
    install::ensure(&[install::PROMTOOL]).unwrap();
    let folder = workspace().join("compose/prometheus");
    let output = Command::new("promtool").args(arguments).current_dir(folder).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

fn file(path: &str) -> String {
    fs::read_to_string(workspace().join(path)).unwrap()
}

/// What follows `key: ` in each line that has it.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix(key)).collect()
}

#[test]
fn configuration_and_rules_are_valid() {
    promtool(&["check", "config", "prometheus.yaml"]);
    promtool(&["check", "rules", "rules.yaml"]);
}

#[test]
fn alarms_are_raised_when_they_should_be_and_not_before() {
    promtool(&["test", "rules", "rules.test.yaml"]);
}

#[test]
fn every_alarm_is_explained_and_tried_both_ways() {
    let (rules, tests, runbook) = (
        file("compose/prometheus/rules.yaml"),
        file("compose/prometheus/rules.test.yaml"),
        file("docs/operations.md"),
    );
    let alarms = values(&rules, "alert: ");
    assert!(alarms.len() > 10, "{alarms:?}");
    for key in ["summary: ", "description: ", "severity: "] {
        let said = rules.matches(key).count();
        assert_eq!(said, alarms.len(), "{key}: one an alarm");
    }
    let wanted: Vec<String> =
        alarms.iter().map(|alarm| format!("\"docs/operations.md#{}\"", alarm.to_lowercase())).collect();
    assert_eq!(values(&rules, "runbook: "), wanted);
    for alarm in &alarms {
        assert!(runbook.contains(&format!("\n### {alarm}\n")), "{alarm} is not in docs/operations.md");
    }
    // A case is a name with, in the line after it, none or some.
    let lines: Vec<&str> = tests.lines().map(str::trim).collect();
    let cases: BTreeSet<(&str, bool)> = lines
        .windows(2)
        .filter_map(|pair| Some((pair[0].strip_prefix("alertname: ")?, pair[1] == "exp_alerts: []")))
        .collect();
    let both = alarms.iter().flat_map(|alarm| [(*alarm, false), (*alarm, true)]).collect();
    assert_eq!(cases, both, "each alarm once raised and once quiet");
}
