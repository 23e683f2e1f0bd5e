//! What ends a field: its topics become another log. Nothing of the new log may get into what was counted of the old.

use super::field::{Field, tail};
use super::kinds::Kind;
use super::load::{Load, wire};
use crate::schedule::{Planned, Timeline};
use crate::support::{LONG, Ledger, Read, Role, text};
use onlooker_event::partition_of;
use onlooker_testkit::{wait_until, wait_until_async};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// What a room says that will not go on, whichever it sees first.
const SAYS: [&str; 5] = [
    "made anew",
    "its data belong to",
    "of a log with 4",
    "and layout.partitions is 4",
    "the log is shorter than what was counted from it",
];

pub(super) async fn end(field: &mut Field, fault: &Planned<Kind>, timeline: &Timeline) {
    let topics: &[&str] = [&["views"][..], &["views.counted"], &["views", "views.counted"]][fault.pick % 3];
    // Filters read the one and write the other.
    let concerned: &[&str] =
        if topics.contains(&"views.counted") { &["filter", "counter"] } else { &["filter"] };
    let hands = Hands::of(field);
    match fault.kind {
        Kind::TopicAnew => anew(field, &hands, topics, concerned, timeline).await,
        _ => more_partitions(field, &hands, topics, concerned, 5 + fault.pick / 3 % 3, timeline).await,
    }
}

async fn anew(field: &Field, hands: &Hands, topics: &[&str], concerned: &[&str], timeline: &Timeline) {
    field.check(timeline).await;
    let archive = field.system.archive().await;
    let before = archive.rows().await;
    // How much lies in the old topics: the new ones grow as long, so that the old offsets are within them again.
    let partitions = 0..i32::try_from(field.system.partitions).unwrap();
    let log = field.system.log();
    let ends =
        |topic: &&str| partitions.clone().map(|partition| log.end(topic, partition)).collect::<Vec<_>>();
    let all: i64 = tokio::task::block_in_place(|| topics.iter().flat_map(ends).sum());
    timeline.note(format!("{topics:?} are deleted"));
    for topic in topics {
        hands.remove(topic).await;
    }
    let said = text(&tokio::task::block_in_place(|| field.system.onlooker(&["topics", "apply"])));
    timeline.note("and made again");
    assert!(topics.iter().all(|topic| said.contains(&format!("{topic}: created"))), "{said}");
    let http = field.system.http();
    let mut taken = 0;
    while taken < all * 3 / 2 {
        let view = |n| {
            let n = taken + n;
            wire(&format!("item {}", n % 200), &format!("viewer of the new topic {n}"), &format!("new {n}"))
        };
        if let Some((202, _)) = http.try_send(&json!((0..50).map(view).collect::<Vec<_>>())).await {
            taken += 50;
        }
    }
    timeline.note(format!("{taken} views were taken into what is new"));
    let knows = |role: &Role| topics.contains(&"views") || role.name().starts_with("counter");
    refuse(field, concerned, knows, timeline);
    assert!(archive.rows().await == before, "what was counted of the old topics has changed");
}

async fn more_partitions(
    field: &mut Field,
    hands: &Hands,
    topics: &[&str],
    concerned: &[&str],
    count: usize,
    timeline: &Timeline,
) {
    let load = Load::start(&field.system);
    let log = field.system.log();
    let judged = || log.records("views.counted").len() + log.records("views.ignored").len() > 200;
    tokio::task::block_in_place(|| wait_until("views to be judged", LONG, judged)).unwrap();
    timeline.note(format!("{topics:?} get {count} partitions"));
    for topic in topics {
        hands.add_partitions(topic, count).await;
    }
    refuse(field, concerned, |_| true, timeline);
    let taken = tokio::time::timeout(LONG, load.end()).await.expect("collectors go on");
    field.acknowledged.extend(taken);
    let counted = log.counted();
    // A filter goes on until it has looked at the topics again, and spreads keys over the partitions of the layout.
    let is_astray = |read: &Read| read.partition != partition_of(&read.key, field.system.partitions);
    let astray: Vec<&Read> = counted.iter().map(|(read, _)| read).filter(|read| is_astray(read)).collect();
    assert!(astray.is_empty(), "{} of {} verdicts are in another partition", astray.len(), counted.len());
    let mut outcomes: HashMap<(i32, i64), usize> = HashMap::new();
    let ignored = log.ignored();
    let of_counted = counted.iter().map(|(_, c)| (c.source_partition, c.source_offset));
    for source in of_counted.chain(ignored.iter().map(|i| (i.source_partition, i.source_offset))) {
        *outcomes.entry(source).or_default() += 1;
    }
    assert!(outcomes.values().all(|n| *n == 1), "a view has two outcomes");
    let ids: HashSet<String> =
        log.views().iter().filter_map(|(_, view)| Some(view.client_id.as_ref()?.to_string())).collect();
    assert!(field.acknowledged.is_subset(&ids), "what was acknowledged is in the log");
    if concerned.contains(&"counter") {
        // Counters may have stopped anywhere; what is archived is never more than the log says.
        let expected = crate::support::rebuild(&field.system);
        for (key, row) in field.system.archive().await.rows().await {
            let (_, most) =
                expected.get(&key).unwrap_or_else(|| panic!("{key} is archived and not in the log"));
            assert!(
                row.views.is_none_or(|(n, _)| u64::try_from(n).unwrap() <= *most),
                "{key}: {row:?}, {most}"
            );
        }
    } else {
        Ledger::check_counts(&field.system).await;
    }
}

/// Each ends by itself and says why, and so does whoever is started in its place.
fn refuse(field: &Field, concerned: &[&str], knows: impl Fn(&Role) -> bool, timeline: &Timeline) {
    tokio::task::block_in_place(|| {
        for attempt in 0..2 {
            for role in field.of(concerned) {
                if attempt > 0 {
                    // What a filter remembers is of `views`: it has nothing to compare another topic of verdicts with.
                    if !knows(role) {
                        continue;
                    }
                    role.restart();
                }
                role.wait_end();
                assert!(SAYS.iter().any(|why| role.log().contains(why)), "{}", tail(&role.log()));
            }
            timeline.note(format!("{concerned:?} have ended, and said why"));
        }
        field.of(concerned).into_iter().for_each(Role::kill);
    });
}

/// An operator's tools for Kafka.
struct Hands {
    name: String,
    admin: AdminClient<DefaultClientContext>,
    eyes: BaseConsumer,
}

impl Hands {
    fn of(field: &Field) -> Self {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", field.system.kafka.bootstrap());
        Self {
            name: field.system.name.clone(),
            admin: client.create().unwrap(),
            eyes: client.create().unwrap(),
        }
    }

    fn options() -> AdminOptions {
        AdminOptions::new().operation_timeout(Some(LONG))
    }

    async fn remove(&self, topic: &str) {
        let name = format!("{}.{topic}", self.name);
        let outcome = self.admin.delete_topics(&[&name], &Self::options()).await.unwrap();
        assert!(outcome.iter().all(Result::is_ok), "{outcome:?}");
        wait_until_async("the topic to be gone", LONG, || async {
            tokio::task::block_in_place(|| {
                let known = self.eyes.fetch_metadata(None, Duration::from_secs(20));
                known.is_ok_and(|known| known.topics().iter().all(|topic| topic.name() != name))
            })
        })
        .await
        .unwrap();
    }

    async fn add_partitions(&self, topic: &str, count: usize) {
        let name = format!("{}.{topic}", self.name);
        let outcome =
            self.admin.create_partitions(&[NewPartitions::new(&name, count)], &Self::options()).await;
        assert!(outcome.unwrap().iter().all(Result::is_ok));
    }
}
