//! Whether a cluster's servers answer, and are what the protocols rest on. Changes nothing.

use super::setup::wanted;
use super::sight::ClusterSight;
use crate::clock::now_ms;
use crate::config::Config;
use crate::ops::{Finding, Level, bytes, in_time};
use onlooker_kafka::admin::{Drift, check_topics, topic_id};
use onlooker_kafka::check_login;
use onlooker_ports::Topic;
use onlooker_redis::Facts;
use onlooker_scylla::ScyllaArchive;

const KAFKA: &str = "kafka";
const DEDUP: &str = "dedup redis";
const COUNTERS: &str = "counters redis";
const ARCHIVE: &str = "archive";

/// Clocks that differ by more are told. Milliseconds.
const SKEW_MS: i64 = 2_000;
/// A store that is fuller is told. Percent.
const FULL_PERCENT: u64 = 85;

/// Whether each server answers.
pub(super) async fn servers(sight: &ClusterSight) -> Vec<Finding> {
    let cluster = &sight.config.cluster;
    let kafka = async {
        match in_time(check_login(&cluster.kafka)).await {
            Ok(()) => Finding::new(Level::Ok, KAFKA, cluster.kafka.brokers.join(", ")),
            Err(why) => Finding::new(Level::Down, KAFKA, why),
        }
    };
    let dedup = async { of_redis(DEDUP, in_time(sight.dedup.facts()).await) };
    let counters = async { of_redis(COUNTERS, in_time(sight.counters.facts()).await) };
    let archive = async {
        match in_time(sight.archive.topic_id()).await {
            Ok(Some(id)) => Finding::new(
                Level::Ok,
                ARCHIVE,
                format!("log {} is topic {id}", sight.config.layout.generation),
            ),
            Ok(None) => Finding::new(
                Level::Warning,
                ARCHIVE,
                "nobody has noted which topic the log is: `onlooker schema apply`",
            ),
            Err(why) => Finding::new(Level::Down, ARCHIVE, why),
        }
    };
    let (kafka, dedup, counters, archive) = tokio::join!(kafka, dedup, counters, archive);
    vec![kafka, dedup, counters, archive]
}

fn of_redis(name: &str, facts: Result<Facts, String>) -> Finding {
    match facts {
        Err(why) => Finding::new(Level::Down, name, why),
        Ok(facts) => {
            let told: Vec<String> = facts
                .masters
                .iter()
                .map(|master| {
                    let limit =
                        if master.limit_bytes == 0 { "no limit".into() } else { bytes(master.limit_bytes) };
                    format!("version {}, {} of {limit}", master.version, bytes(master.used_bytes))
                })
                .collect();
            Finding::new(Level::Ok, name, told.join("; "))
        }
    }
}

/// What contradicts the protocols, or should be looked at.
pub(super) async fn settings(sight: &ClusterSight) -> Vec<Finding> {
    let config = &sight.config;
    let (topics, dedup, counters, archive) = tokio::join!(
        topics(config),
        in_time(sight.dedup.facts()),
        in_time(sight.counters.facts()),
        archive(config, &sight.archive)
    );
    let mut findings = topics;
    let (dedup, counters) = (dedup.map_err(|why| (DEDUP, why)), counters.map_err(|why| (COUNTERS, why)));
    if let (Ok(dedup), Ok(counters)) = (&dedup, &counters) {
        let shared = |id: &str| counters.masters.iter().any(|master| master.run_id == id);
        if dedup.masters.iter().any(|master| shared(&master.run_id)) {
            let detail = "is the dedup redis too: they want different policies";
            findings.push(Finding::new(Level::Refused, COUNTERS, detail));
        }
    }
    for (name, facts, is_dedup) in [(DEDUP, dedup, true), (COUNTERS, counters, false)] {
        match facts {
            Err((name, why)) => findings.push(Finding::new(Level::Down, name, why)),
            Ok(facts) => findings.extend(of_store(name, &facts, is_dedup, config)),
        }
    }
    findings.extend(archive);
    findings
}

fn of_store(name: &str, facts: &Facts, is_dedup: bool, config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |level, what: &str, detail: String| {
        findings.push(Finding::new(level, format!("{name} {what}"), detail));
    };
    if !facts.is_of_this_log {
        find(
            Level::Refused,
            "log",
            "its data belong to another generation, or to other partitions".to_owned(),
        );
    }
    for master in &facts.masters {
        let policy = master.policy.as_str();
        let (level, why) = match (is_dedup, policy) {
            (true, "noeviction") | (false, "volatile-lru") => (Level::Ok, ""),
            (true, _) => (Level::Refused, ": set noeviction, or an evicted claim lets a view count twice"),
            (false, other) if other.starts_with("allkeys") => {
                (Level::Refused, ": set volatile-lru, or sketches that are not archived are evicted")
            }
            (false, _) => (Level::Warning, ": volatile-lru is what it should be"),
        };
        find(level, "maxmemory-policy", format!("{policy}{why}"));
        let used = format!("{} of {}", bytes(master.used_bytes), bytes(master.limit_bytes));
        match master.limit_bytes {
            0 if is_dedup => find(Level::Ok, "maxmemory", "none".to_owned()),
            0 => find(
                Level::Warning,
                "maxmemory",
                "none: sketches are kept until the machine's memory ends".to_owned(),
            ),
            limit if master.used_bytes * 100 > limit * FULL_PERCENT && is_dedup => {
                find(Level::Warning, "maxmemory", format!("{used}: when it is full, views wait"));
            }
            _ => find(Level::Ok, "maxmemory", used),
        }
        if let Some(clock_ms) = master.clock_ms {
            let (level, detail) = clock(clock_ms, config);
            find(level, "clock", detail);
        }
    }
    findings
}

/// A server's clock beside this machine's.
fn clock(theirs_ms: i64, config: &Config) -> (Level, String) {
    let ahead_ms = theirs_ms - now_ms();
    let level = match ahead_ms.abs() {
        apart if apart > i64::from(config.filter.clock_skew_s) * 1_000 => Level::Refused,
        apart if apart > SKEW_MS => Level::Warning,
        _ => Level::Ok,
    };
    let detail = match level {
        Level::Ok => "as this machine's".to_owned(),
        _ => format!("{} ms ahead of this machine's", ahead_ms),
    };
    (level, detail)
}

async fn archive(config: &Config, archive: &ScyllaArchive) -> Vec<Finding> {
    let report = match in_time(onlooker_scylla::check(&config.cluster.archive)).await {
        Ok(report) => report,
        Err(why) => return vec![Finding::new(Level::Down, ARCHIVE, why)],
    };
    let mut findings: Vec<Finding> = report
        .drift
        .iter()
        .map(|drift| {
            let level = if drift.breaks { Level::Refused } else { Level::Warning };
            Finding::new(level, format!("{ARCHIVE} tables"), drift.to_string())
        })
        .collect();
    if findings.is_empty() {
        findings.push(Finding::new(Level::Ok, format!("{ARCHIVE} tables"), "as they should be"));
    }
    if let Ok(clock_ms) = in_time(archive.clock_ms()).await {
        let (level, detail) = clock(clock_ms, config);
        findings.push(Finding::new(level, format!("{ARCHIVE} clock"), detail));
    }
    // Where Kafka is down, or a topic is missing, that is said elsewhere.
    if let Ok(id) = in_time(topic_id(&config.cluster.kafka, Topic::Counted)).await {
        let claimed = in_time(archive.check_log(&id, config.layout.partitions)).await;
        let (level, detail) = match claimed {
            Ok(()) => (Level::Ok, format!("log {} is topic {id}", config.layout.generation)),
            Err(why) => (Level::Refused, why),
        };
        findings.push(Finding::new(level, format!("{ARCHIVE} log"), detail));
    }
    findings
}

/// Settings that counting rests on, whatever an operator would like.
const FIRM: [&str; 4] =
    ["partitions", "cleanup.policy", "message.timestamp.type", "unclean.leader.election.enable"];

async fn topics(config: &Config) -> Vec<Finding> {
    let wanted = match wanted(config) {
        Ok(wanted) => wanted,
        Err(error) => return vec![Finding::new(Level::Refused, "topics", format!("{error:#}"))],
    };
    let found = match in_time(check_topics(&config.cluster.kafka, &wanted)).await {
        Ok(found) => found,
        Err(why) => return vec![Finding::new(Level::Down, KAFKA, why)],
    };
    let mut findings = Vec::new();
    for ((name, drift), wanted) in found.into_iter().zip(&wanted) {
        let subject = format!("topic {name}");
        match drift {
            Err(error) => findings.push(Finding::new(Level::Refused, subject, error.to_string())),
            Ok(drift) => {
                findings.extend(of_topic(&subject, wanted.topic, wanted.spec.replication, &drift, config))
            }
        }
    }
    findings
}

fn of_topic(subject: &str, topic: Topic, copies: u16, drift: &[Drift], config: &Config) -> Vec<Finding> {
    let slices_s = 2 * u64::from(config.filter.slice_s) + u64::from(config.filter.clock_skew_s);
    let fewer = |drift: &Drift| drift.found.parse::<u64>().ok() < drift.wanted.parse::<u64>().ok();
    let mut findings: Vec<Finding> = drift
        .iter()
        .map(|drift| {
            let short = drift.found.parse::<u64>().is_ok_and(|ms| ms < slices_s * 1_000);
            let (level, why) = match drift.setting.as_str() {
                "retention.ms" if topic == Topic::Counted && short => {
                    (Level::Refused, format!(": the filter's memory is rebuilt from {slices_s} s of it"))
                }
                "min.insync.replicas" if fewer(drift) => {
                    (Level::Refused, ": an acknowledged record may be lost with one machine".to_owned())
                }
                setting if FIRM.contains(&setting) => (Level::Refused, String::new()),
                _ => (Level::Warning, String::new()),
            };
            Finding::new(level, subject, format!("{drift}{why}"))
        })
        .collect();
    if copies < 2 {
        let detail = "one copy: what its broker loses is lost";
        findings.push(Finding::new(Level::Warning, subject, detail));
    }
    if findings.is_empty() {
        findings.push(Finding::new(Level::Ok, subject, "as it should be"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Layers;
    use onlooker_redis::ServerFacts;

    fn config() -> Config {
        Config::read(&Layers::default()).unwrap()
    }

    fn worst(findings: &[Finding]) -> Level {
        findings.iter().map(|finding| finding.level).max().unwrap()
    }

    #[test]
    fn topics_are_refused_for_what_counting_rests_on() {
        let drift = |setting: &str, wanted: &str, found: &str| Drift {
            setting: setting.into(),
            wanted: wanted.into(),
            found: found.into(),
            fixed: false,
        };
        let level = |topic, drift: &[Drift]| worst(&of_topic("t", topic, 3, drift, &config()));
        assert_eq!(level(Topic::Counted, &[]), Level::Ok);
        let short = drift("retention.ms", "2592000000", "7499999");
        assert_eq!(level(Topic::Counted, std::slice::from_ref(&short)), Level::Refused);
        assert_eq!(level(Topic::Ignored, &[short]), Level::Warning);
        assert_eq!(level(Topic::Counted, &[drift("retention.ms", "2592000000", "7500000")]), Level::Warning);
        assert_eq!(level(Topic::Views, &[drift("min.insync.replicas", "2", "1")]), Level::Refused);
        assert_eq!(level(Topic::Views, &[drift("min.insync.replicas", "2", "3")]), Level::Warning);
        assert_eq!(level(Topic::Views, &[drift("cleanup.policy", "delete", "compact")]), Level::Refused);
        assert_eq!(level(Topic::Views, &[drift("replication.factor", "3", "2")]), Level::Warning);
        assert_eq!(worst(&of_topic("t", Topic::Views, 1, &[], &config())), Level::Warning);
    }

    #[test]
    fn stores_are_refused_for_what_they_would_forget() {
        let level = |is_dedup, policy: &str, limit_bytes, used_bytes, clock_ms, is_of_this_log| {
            let master = ServerFacts {
                run_id: "r".into(),
                version: "8".into(),
                policy: policy.into(),
                used_bytes,
                limit_bytes,
                clock_ms: Some(clock_ms),
            };
            let facts = Facts { masters: vec![master], is_of_this_log };
            worst(&of_store("s", &facts, is_dedup, &config()))
        };
        let now = now_ms();
        assert_eq!(level(true, "noeviction", 0, 5, now, true), Level::Ok);
        assert_eq!(level(true, "volatile-lru", 0, 5, now, true), Level::Refused);
        assert_eq!(level(true, "noeviction", 100, 90, now, true), Level::Warning);
        assert_eq!(level(false, "volatile-lru", 100, 90, now, true), Level::Ok);
        assert_eq!(level(false, "volatile-lru", 0, 90, now, true), Level::Warning);
        assert_eq!(level(false, "noeviction", 100, 1, now, true), Level::Warning);
        assert_eq!(level(false, "allkeys-lru", 100, 1, now, true), Level::Refused);
        assert_eq!(level(false, "volatile-lru", 100, 1, now, false), Level::Refused);
        assert_eq!(level(true, "noeviction", 0, 5, now - 60_000, true), Level::Warning);
        assert_eq!(level(true, "noeviction", 0, 5, now + 3_600_000, true), Level::Refused);
    }
}
