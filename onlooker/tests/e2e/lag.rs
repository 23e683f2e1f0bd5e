//! `onlooker lag` beside Kafka's own tool, and beside the truth.

use crate::support::{LONG, System, Wishes, text, view};
use onlooker_testkit::{kafka_tools, wait_until_async};
use rdkafka::admin::AdminClient;
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The lines of an answer by topic and partition, and the exit code.
fn lag(system: &System, args: &[&str]) -> (BTreeMap<(String, i64), Value>, i32) {
    let output = system.onlooker(&[&["lag", "--json"], args].concat());
    let code = output.status.code().unwrap();
    assert!(code == 0 || code == 3, "{}", text(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let topic = line["topic"].as_str().unwrap().split_once('.').unwrap().1.to_owned();
        ((topic, line["partition"].as_i64().unwrap()), line)
    };
    (lines.lines().map(line).collect(), code)
}

/// A group's committed offset in a partition, the partition's end, and the member that owns it.
type Told = (Option<i64>, i64, Option<String>);

/// What Kafka's tool says of a group, by topic and partition.
fn by_tool(system: &System, group: &str) -> BTreeMap<(String, i64), Told> {
    let main = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
    let group = format!("{}.{group}", system.name);
    let args = ["--bootstrap-server", &system.kafka.bootstrap(), "--describe", "--group", &group];
    let said = kafka_tools::run(main, &args).unwrap();
    let mut found = BTreeMap::new();
    for line in said.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID
        let [of, topic, partition, current, end, _, member, ..] = fields[..] else { continue };
        let Ok(partition) = partition.parse() else { continue };
        assert_eq!(of, group, "{said}");
        let topic = topic.split_once('.').unwrap().1.to_owned();
        let member = (member != "-").then(|| member.to_owned());
        found.insert((topic, partition), (current.parse().ok(), end.parse().unwrap(), member));
    }
    assert!(!found.is_empty(), "{said}");
    found
}

/// Both say the same of a group that is just working: its commits are between what was said before and after.
async fn agree(system: &System, group: &str, topic: &str) {
    let begun = Instant::now();
    loop {
        let before = by_tool(system, group);
        let (ours, _) = lag(system, &[]);
        let after = by_tool(system, group);
        // Offsets move by the second; what does not move must be the same.
        if before == after {
            for ((of, partition), (committed, end, member)) in before {
                assert_eq!(of, topic);
                let line = &ours[&(of, partition)];
                assert_eq!(
                    (line["committed"].as_i64(), line["end"].as_i64()),
                    (committed, Some(end)),
                    "{line}"
                );
                let owner = line["owner"].as_str().map(|owner| owner.split_once('@').unwrap().0.to_owned());
                assert_eq!(owner, member, "{line}");
            }
            return;
        }
        assert!(begun.elapsed() < LONG, "offsets do not come to rest: {before:?} {after:?}");
    }
}

fn of<'a>(lines: &'a BTreeMap<(String, i64), Value>, topic: &str) -> Vec<&'a Value> {
    lines.iter().filter(|((of, _), _)| of == topic).map(|(_, line)| line).collect()
}

fn sum(lines: &[&Value], what: &str) -> i64 {
    lines.iter().map(|line| line.pointer(what).unwrap().as_i64().unwrap()).sum()
}

async fn send(system: &System, viewers: std::ops::Range<usize>) {
    let views: Vec<Value> =
        viewers.map(|n| view(&format!("item {}", n % 7), &format!("viewer {n}"))).collect();
    system.http().send(&views).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lag_is_what_kafkas_tool_says_and_what_is_true() {
    let system =
        System::start(Wishes { config: "[flusher]\ninterval_ms = 500\n".into(), ..Wishes::default() });
    // Nobody has begun: the filters' start is committed by the set-up, the counters' is not.
    let (lines, code) = lag(&system, &[]);
    assert_eq!((lines.len(), code), (8, 0), "an empty system is not behind: {lines:?}");
    let roles = system.all_roles();
    send(&system, 0..400).await;
    let settled = || async {
        let (lines, _) = lag(&system, &[]);
        let done = |line: &&Value| {
            line["applied"] == line["end"]
                && line["durable"] == line["end"]
                && line["committed"] == line["end"]
        };
        lines.values().filter(done).count() == 8 && sum(&of(&lines, "views"), "/end") == 400
    };
    wait_until_async("everything to be durable and committed", LONG, settled).await.unwrap();
    agree(&system, "filter", "views").await;
    agree(&system, "counter", "views.counted").await;

    // A counter that is paused: the verdicts wait, and are counted one by one; markers and aborted records are not.
    let counter = roles.iter().find(|role| role.name().starts_with("counter-")).unwrap();
    counter.signal(libc::SIGSTOP);
    send(&system, 1_000..1_300).await;
    aborted(&system);
    let waiting = || async {
        let (lines, _) = lag(&system, &[]);
        let counted = of(&lines, "views.counted");
        sum(&counted, "/waiting/records") == 300 && sum(&of(&lines, "views"), "/waiting/records") == 0
    };
    wait_until_async("300 verdicts to wait", LONG, waiting).await.unwrap();
    let (lines, _) = lag(&system, &[]);
    let counted = of(&lines, "views.counted");
    assert!(counted.iter().all(|line| line["waiting"]["exact"] == true), "{counted:?}");
    let offsets = sum(&counted, "/end") - sum(&counted, "/applied");
    assert!(offsets > 300, "markers and aborted records take offsets: {offsets}");
    let oldest = counted.iter().filter_map(|line| line["waiting"]["age_ms"].as_i64()).max().unwrap();
    assert!(oldest > 0, "{counted:?}");
    let (_, code) = lag(&system, &["--max-age", "1ms"]);
    assert_eq!(code, 3);
    counter.signal(libc::SIGCONT);
    wait_until_async("the counter to catch up", LONG, || async {
        let (lines, _) = lag(&system, &[]);
        sum(&of(&lines, "views.counted"), "/waiting/records") == 0
    })
    .await
    .unwrap();

    // A group that never committed.
    let never = format!("log.groups.filter={}.never", system.name);
    let (lines, code) = lag(&system, &["--set", &never]);
    let views = of(&lines, "views");
    assert_eq!((sum(&views, "/waiting/records"), code), (700, 3), "{views:?}");
    for line in views {
        assert_eq!((&line["committed"], &line["state"]), (&Value::Null, &json!("unknown")), "{line}");
    }

    // Retention goes past a counter that is not there.
    drop(roles);
    let _rest: Vec<_> = ["collector", "filter"].map(|role| system.role(role)).into();
    send(&system, 2_000..2_400).await;
    wait_until_async("400 verdicts to wait", LONG, || async {
        sum(&of(&lag(&system, &[]).0, "views.counted"), "/waiting/records") == 400
    })
    .await
    .unwrap();
    let (lines, code) = lag(&system, &[]);
    assert_eq!(code, 3, "a group without a member: {lines:?}");
    let line = lines[&("views.counted".to_owned(), 0)].clone();
    let cut = line["end"].as_i64().unwrap();
    trim(&system, 0, cut).await;
    let (lines, code) = lag(&system, &[]);
    let trimmed = &lines[&("views.counted".to_owned(), 0)];
    let gone = cut - line["durable"].as_i64().unwrap();
    assert_eq!((trimmed["gone"].as_i64(), trimmed["earliest"].as_i64(), code), (Some(gone), Some(cut), 3));
    assert_eq!(trimmed["waiting"]["records"], 0, "{trimmed}");
}

/// A transaction with records that is aborted.
fn aborted(system: &System) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", system.kafka.bootstrap())
        .set("transactional.id", "one that gives up")
        .create()
        .unwrap();
    let wait = Duration::from_secs(30);
    producer.init_transactions(wait).unwrap();
    producer.begin_transaction().unwrap();
    let topic = format!("{}.views.counted", system.name);
    for partition in 0..4 {
        let record = BaseRecord::<[u8], [u8]>::to(&topic).partition(partition).payload(b"never").key(b"key");
        producer.send(record).unwrap();
    }
    producer.flush(wait).unwrap();
    producer.abort_transaction(wait).unwrap();
}

async fn trim(system: &System, partition: i32, offset: i64) {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", system.kafka.bootstrap()).create().unwrap();
    let mut list = TopicPartitionList::new();
    let topic = format!("{}.views.counted", system.name);
    list.add_partition_offset(&topic, partition, Offset::Offset(offset)).unwrap();
    admin.delete_records(&list, &Default::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_is_named_within_seconds() {
    let system = System::start(Wishes::default());
    let _roles = system.all_roles();
    send(&system, 0..20).await;
    for (server, set) in [
        ("kafka", "log.brokers=[\"127.0.0.1:1\"]"),
        ("counters", "counters.nodes=[\"127.0.0.1:1\"]"),
        ("archive", "archive.nodes=[\"127.0.0.1:1\"]"),
    ] {
        let begun = Instant::now();
        let output = system.onlooker(&["lag", "--set", set]);
        let told = text(&output);
        assert!(!output.status.success() && told.contains(server), "{server}: {told}");
        // A promise to people, and far above what it takes.
        assert!(begun.elapsed() < Duration::from_secs(30), "{server}: {:?}", begun.elapsed());
    }
}
