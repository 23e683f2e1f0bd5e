//! What is done to Kafka behind the system's back: offsets and records that go, topics that change.

use crate::support::{LONG, Ledger, Role, System, Wishes, text, view};
use onlooker_testkit::{wait_until, wait_until_async};
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde_json::Value;
use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

/// An operator's tools for Kafka.
struct Hands<'a> {
    system: &'a System,
    admin: AdminClient<DefaultClientContext>,
    options: AdminOptions,
}

impl<'a> Hands<'a> {
    fn of(system: &'a System) -> Self {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", system.kafka.bootstrap());
        let options = AdminOptions::new().operation_timeout(Some(LONG));
        Self { system, admin: client.create().unwrap(), options }
    }

    fn name(&self, topic: &str) -> String {
        format!("{}.{topic}", self.system.name)
    }

    fn as_group(&self, group: &str) -> BaseConsumer {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", self.system.kafka.bootstrap()).set("group.id", self.name(group));
        client.create().unwrap()
    }

    /// First and next offset of each partition.
    fn bounds(&self, topic: &str) -> Vec<(i64, i64)> {
        let (eyes, topic) = (self.as_group("eyes"), self.name(topic));
        let partitions = 0..i32::try_from(self.system.partitions).unwrap();
        partitions.map(|p| eyes.fetch_watermarks(&topic, p, LONG).unwrap()).collect()
    }

    /// Removes all records, as retention would. Returns where each partition begins now.
    async fn remove_records(&self, topic: &str) -> Vec<i64> {
        let ends: Vec<i64> = self.bounds(topic).into_iter().map(|(_, end)| end).collect();
        let mut list = TopicPartitionList::new();
        for (p, end) in ends.iter().enumerate() {
            let p = i32::try_from(p).unwrap();
            list.add_partition_offset(&self.name(topic), p, Offset::Offset(*end)).unwrap();
        }
        self.admin.delete_records(&list, &self.options).await.unwrap();
        ends
    }

    async fn remove_group(&self, group: &str) {
        let group = self.name(group);
        wait_until_async("the group to be gone", LONG, || async {
            let outcome = self.admin.delete_groups(&[&group], &self.options).await.unwrap();
            outcome.iter().all(Result::is_ok)
        })
        .await
        .unwrap();
    }

    fn committed(&self, group: &str, topic: &str) -> Vec<i64> {
        let mut list = TopicPartitionList::new();
        let partitions = i32::try_from(self.system.partitions).unwrap();
        list.add_partition_range(&self.name(topic), 0, partitions - 1);
        let found = self.as_group(group).committed_offsets(list, LONG).unwrap();
        found.elements().iter().map(|e| e.offset().to_raw().unwrap_or(-1).max(-1)).collect()
    }

    fn commit(&self, group: &str, topic: &str, offsets: &[i64]) {
        let mut list = TopicPartitionList::new();
        for (p, offset) in offsets.iter().enumerate() {
            let p = i32::try_from(p).unwrap();
            list.add_partition_offset(&self.name(topic), p, Offset::Offset(*offset)).unwrap();
        }
        self.as_group(group).commit(&list, CommitMode::Sync).unwrap();
    }

    async fn remove_topic(&self, topic: &str) {
        let outcome = self.admin.delete_topics(&[&self.name(topic)], &self.options).await.unwrap();
        assert!(outcome.iter().all(Result::is_ok), "{outcome:?}");
        let eyes = self.as_group("eyes");
        wait_until("the topic to be gone", LONG, || {
            let known = eyes.fetch_metadata(None, LONG).unwrap();
            known.topics().iter().all(|t| t.name() != self.name(topic))
        })
        .unwrap();
    }

    async fn add_partitions(&self, topic: &str, count: usize) {
        let name = self.name(topic);
        let wanted = NewPartitions::new(&name, count);
        let outcome = self.admin.create_partitions(&[wanted], &self.options).await.unwrap();
        assert!(outcome.iter().all(Result::is_ok), "{outcome:?}");
    }
}

fn crowd(viewers: Range<usize>) -> Vec<Value> {
    let items = ["a", "b", "c", "d", "e", "f", "g"];
    viewers.map(|v| view(items[v % items.len()], &format!("viewer {v}"))).collect()
}

fn not_ready(role: &Role, why: &str) {
    let says_so = || role.admin_text("readyz").is_some_and(|page| page.contains(why));
    wait_until(&format!("readiness to say {why:?}"), LONG, says_so)
        .unwrap_or_else(|e| panic!("{e:#}: {:?}", role.admin_text("readyz")));
}

fn stop(role: &Role) {
    let status = role.stop(Duration::from_secs(30));
    assert!(status.success(), "{status} {}", role.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_retention_removed_is_said_and_the_rest_counts() {
    let system = System::start(Wishes::default());
    let hands = Hands::of(&system);
    let _collector = system.role("collector");
    let filter = system.role("filter");
    let http = system.http();
    http.send(&crowd(0..70)).await;
    Ledger::check(&system, &HashSet::new());
    stop(&filter);
    let judged: i64 = hands.committed("filter", "views").iter().sum();
    http.send(&crowd(70..140)).await;
    let begin: i64 = hands.remove_records("views").await.iter().sum();
    http.send(&crowd(140..210)).await;
    let filter = system.role("filter");
    let log = system.log();
    wait_until("the rest to be judged", LONG, || log.records("views.counted").len() >= 140).unwrap();
    assert_eq!(log.records("views.counted").len(), 140);
    assert_eq!(filter.metric("onlooker_filter_lost_records_total"), (begin - judged) as f64);
    assert_eq!(begin - judged, 70);
    // The same again behind the filter: its output is gone before anybody counted it.
    let gone: i64 = hands.remove_records("views.counted").await.iter().sum();
    http.send(&crowd(210..280)).await;
    wait_until("new ones", LONG, || log.records("views.counted").len() >= 70).unwrap();
    let counter = Role::launch(&system, "counter", &[]);
    not_ready(&counter, "the log has lost the records that come next");
    assert!(system.counters_eyes().sketches().is_empty(), "nothing is passed over in silence");
    stop(&counter);
    let skip = ["--set", "counter.lost_records=skip"];
    let counter = Role::launch(&system, "counter", &skip);
    counter.wait_ready();
    let _others = [system.role("flusher"), system.role("counts-api")];
    wait_until("the skip to be counted", LONG, || {
        counter.metric("onlooker_counter_lost_offsets_total") == gone as f64
    })
    .unwrap();
    Ledger::check_counts(&system).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_that_is_rebuilt_from_too_few_verdicts_says_so() {
    let system = System::start(Wishes::default());
    let hands = Hands::of(&system);
    let _collector = system.role("collector");
    let filter = system.role("filter");
    let http = system.http();
    http.send(&crowd(0..70)).await;
    Ledger::check(&system, &HashSet::new());
    stop(&filter);
    // Nothing is missing from a log that begins at its beginning.
    system.dedup_eyes().flush_all();
    let filter = system.role("filter");
    http.send(&crowd(0..140)).await;
    Ledger::check(&system, &HashSet::new());
    assert!(!filter.log().contains("retention may have removed"), "{}", filter.log());
    stop(&filter);
    hands.remove_records("views.counted").await;
    system.dedup_eyes().flush_all();
    let filter = system.role("filter");
    http.send(&crowd(140..210)).await;
    wait_until("new ones", LONG, || system.log().records("views.counted").len() >= 70).unwrap();
    stop(&filter);
    system.dedup_eyes().flush_all();
    let filter = system.role("filter");
    assert!(filter.log().contains("retention may have removed"), "{}", filter.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_lost_its_offsets_counts_nothing_twice() {
    let system = System::start(Wishes::default());
    let hands = Hands::of(&system);
    let _others = ["collector", "flusher", "counts-api"].map(|role| system.role(role));
    let roles = [system.role("filter"), system.role("counter")];
    let http = system.http();
    http.send(&crowd(0..140)).await;
    Ledger::check(&system, &HashSet::new());
    Ledger::check_counts(&system).await;
    roles.iter().for_each(stop);
    let judged = hands.committed("filter", "views");
    hands.remove_group("filter").await;
    hands.remove_group("counter").await;
    // The counter never starts from there. The filter does, and will not guess.
    let _counter = system.role("counter");
    let filter = Role::launch(&system, "filter", &[]);
    not_ready(&filter, "no committed offset");
    let output = system.onlooker(&["topics", "apply"]);
    assert!(output.status.success(), "{}", text(&output));
    let begun = hands.committed("filter", "views");
    assert!(begun.iter().all(|offset| *offset < 0), "a topic that was there does not begin anew: {begun:?}");
    stop(&filter);
    // Somebody commits what is not so, and is told where the views were judged up to.
    let nothing = vec![0; judged.len()];
    hands.commit("filter", "views", &nothing);
    let filter = Role::launch(&system, "filter", &[]);
    not_ready(&filter, "the group's offset was moved back");
    stop(&filter);
    assert_eq!(system.log().records("views.counted").len(), 140);
    // What the filters remembered is gone too. The verdicts in the log still tell.
    hands.remove_group("filter").await;
    system.dedup_eyes().flush_all();
    let output = system.onlooker(&["topics", "apply", "--start-groups"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(hands.committed("filter", "views"), judged);
    let _filter = system.role("filter");
    http.send(&crowd(70..210)).await;
    Ledger::check(&system, &HashSet::new());
    assert_eq!(system.log().records("views.counted").len(), 210);
    Ledger::check_counts(&system).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_made_anew_is_another_log() {
    let system = System::start(Wishes::default());
    let hands = Hands::of(&system);
    let roles = system.all_roles();
    let http = system.http();
    http.send(&crowd(0..140)).await;
    Ledger::check(&system, &HashSet::new());
    Ledger::check_counts(&system).await;
    roles.iter().for_each(stop);
    for topic in ["views", "views.counted"] {
        hands.remove_topic(topic).await;
    }
    let output = system.onlooker(&["topics", "apply"]);
    assert!(output.status.success(), "{}", text(&output));
    let output = system.onlooker(&["schema", "apply"]);
    assert!(!output.status.success() && text(&output).contains("a log name of its own"), "{}", text(&output));
    let _collector = system.role("collector");
    http.send(&crowd(0..70)).await;
    let filter = Role::launch(&system, "filter", &[]);
    let counter = Role::launch(&system, "counter", &[]);
    for role in [&filter, &counter] {
        role.wait_end();
        assert!(role.log().contains("its data belong to topic"), "{}", role.log());
    }
    assert_eq!(system.log().records("views.counted").len(), 0);
    // What the messages ask for: another name, and stores that hold nothing of the old log.
    let name = ["--set", "layout.generation=\"second\""];
    system.dedup_eyes().flush_all();
    system.counters_eyes().flush_all();
    let output = system.onlooker(&["schema", "apply", name[0], name[1]]);
    assert!(output.status.success(), "{}", text(&output));
    let roles = ["filter", "counter", "flusher", "counts-api"].map(|role| Role::launch(&system, role, &name));
    roles.iter().for_each(Role::wait_ready);
    Ledger::check(&system, &HashSet::new());
    assert_eq!(system.log().records("views.counted").len(), 70);
    wait_until_async("the new log's counts", LONG, || async {
        http.counts(&["a", "g"]).await.iter().all(|count| count["views"] == 10)
    })
    .await
    .unwrap();
}

/// Somebody copied a configuration and gave the copy topics and a keyspace of its own, but neither Redis nor generation.
#[tokio::test(flavor = "multi_thread")]
async fn two_systems_in_one_redis_are_told_apart() {
    let config = "[flusher]\ninterval_ms = 500\n".to_owned();
    let (first, copy) =
        (System::start(Wishes { config, ..Wishes::default() }), System::start(Wishes::default()));
    let roles = first.all_roles();
    first.http().send(&crowd(0..140)).await;
    Ledger::check_counts(&first).await;
    let sets = [
        format!("dedup.nodes=[\"127.0.0.1:{}\"]", first.dedup.port()),
        format!("counters.nodes=[\"127.0.0.1:{}\"]", first.counters.port()),
        format!("layout.generation=\"{}\"", first.name),
    ];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let output = copy.onlooker(&[&["schema", "apply"], &sets[..]].concat());
    assert!(output.status.success(), "{}", text(&output));
    let _collector = copy.role("collector");
    copy.http().send(&crowd(0..700)).await;
    for role in ["filter", "counter", "flusher"].map(|role| Role::launch(&copy, role, &sets)) {
        role.wait_end();
        assert!(role.log().contains("its data belong to topic"), "{}", role.log());
    }
    assert!(copy.archive().await.durable().await.is_empty(), "nothing was copied over");
    first.http().send(&crowd(140..280)).await;
    Ledger::check(&first, &HashSet::new());
    Ledger::check_counts(&first).await;
    roles.iter().for_each(Role::wait_ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_made_anew_while_all_run_stops_it() {
    let system = System::start(Wishes::default());
    let hands = Hands::of(&system);
    let roles = system.all_roles();
    let http = system.http();
    http.send(&crowd(0..140)).await;
    Ledger::check(&system, &HashSet::new());
    Ledger::check_counts(&system).await;
    for topic in ["views", "views.counted"] {
        hands.remove_topic(topic).await;
    }
    // It makes the topics and leaves the group alone, which has members.
    let said = text(&system.onlooker(&["topics", "apply"]));
    assert!(said.contains("views.counted: created"), "{said}");
    for role in &roles[1..3] {
        role.wait_end();
        assert!(role.log().contains("made anew"), "{}", role.log());
    }
}

/// Verdicts of the old topic that are left must not tell filters where to begin in the new one.
#[tokio::test(flavor = "multi_thread")]
async fn verdicts_of_an_older_topic_start_no_group() {
    let system = System::start(Wishes::default());
    let hands = Hands::of(&system);
    let roles = [system.role("collector"), system.role("filter")];
    let http = system.http();
    http.send(&crowd(0..140)).await;
    http.send(&crowd(0..140)).await;
    Ledger::check(&system, &HashSet::new());
    roles.iter().for_each(stop);
    for topic in ["views", "views.counted"] {
        hands.remove_topic(topic).await;
    }
    let output = system.onlooker(&["topics", "apply"]);
    assert!(output.status.success(), "{}", text(&output));
    hands.remove_group("filter").await;
    system.dedup_eyes().flush_all();
    let _collector = system.role("collector");
    http.send(&crowd(0..700)).await;
    let said = text(&system.onlooker(&["topics", "apply", "--start-groups"]));
    assert!(said.contains("is on another view") && said.contains("made anew"), "{said}");
    // What it says.
    hands.commit("filter", "views", &[0; 4]);
    let _filter = system.role("filter");
    let log = system.log();
    wait_until("all views of the new topic", LONG, || log.records("views.counted").len() >= 700).unwrap();
    assert_eq!(log.records("views.counted").len(), 700);
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_somebody_added_stop_it() {
    let system = System::start(Wishes::default());
    let hands = Hands::of(&system);
    let _doors = [system.role("collector"), system.role("counts-api")];
    let running = [system.role("filter"), system.role("counter")];
    let http = system.http();
    http.send(&crowd(0..70)).await;
    Ledger::check(&system, &HashSet::new());
    for topic in ["views", "views.counted"] {
        hands.add_partitions(topic, 6).await;
    }
    let said = text(&system.onlooker(&["topics", "apply"]));
    assert!(said.contains("partitions") && said.contains("differ"), "{said}");
    for role in running.iter().chain(&["filter", "counter"].map(|role| Role::launch(&system, role, &[]))) {
        role.wait_end();
        // Whichever comes first: one of the new partitions, or the count of all.
        let says = ["of a log with 4", "has 6 partitions and layout.partitions is 4"];
        assert!(says.iter().any(|why| role.log().contains(why)), "{}", role.log());
    }
    assert_eq!(system.log().records("views.counted").len(), 70);
}
