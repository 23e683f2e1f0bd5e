//! The room on servers in memory that fail when they are told to.

use crate::fake::{Servers, unavailable};
use crate::heart::Note;
use crate::heart::sim::reference;
use crate::heart::sim::rng::Rng;
use crate::{FilterConfig, FilterError, SiteRules, Sites, run};
use onlooker_event::{
    ClientId, DeadReason, Facts, ItemId, SiteId, Verdict, View, ViewId, ViewerHash, client_id_key, dedup_key,
};
use onlooker_ports::{Committed, GroupEvent, PortError, Topic};
use onlooker_proto::{CARRIED_OVER, Counted, decode_counted, decode_dead, decode_ignored, encode_view};
use onlooker_stage::shutdown::channel;
use onlooker_stage::telemetry::MetricsHandle;
use onlooker_stage::{Health, ShutdownTrigger};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};

const WINDOW_S: u32 = 30;
const SLICE_S: u32 = 60;

fn sites() -> Sites {
    [(SiteId::new("s").unwrap(), SiteRules { window_s: WINDOW_S })].into_iter().collect()
}

fn config() -> FilterConfig {
    let config = FilterConfig { slice_s: SLICE_S, lateness_s: 20, stall_s: 60, ..FilterConfig::default() };
    assert_eq!(config.faults(&sites()), []);
    config
}

fn view(viewer: u8, item: &str, s: i64) -> View {
    View {
        view_id: ViewId([1; 16]),
        site: SiteId::new("s").unwrap(),
        item: ItemId::new(item).unwrap(),
        viewer: ViewerHash([viewer; 16]),
        key_version: 1,
        event_ms: s * 1_000,
        received_ms: s * 1_000,
        client_id: None,
        user_agent: None,
        referrer: None,
        facts: Facts(0),
    }
}

fn bytes(view: &View) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_view(view, &mut bytes);
    bytes
}

struct Running {
    task: JoinHandle<Result<(), FilterError>>,
    trigger: ShutdownTrigger,
    health: Health,
    metrics: MetricsHandle,
}

fn start(servers: &Servers, config: FilterConfig) -> Running {
    let (trigger, shutdown) = channel();
    let (health, metrics) = (Health::new(), MetricsHandle::detached().unwrap());
    let (room_health, ports) = (health.clone(), servers.ports());
    let room = run(config, sites(), ports, room_health, shutdown);
    // Metrics are registered in the first turn.
    let mut room = Box::pin(room);
    let first = metrics.within(|| futures::FutureExt::now_or_never(&mut room));
    assert!(first.is_none());
    Running { task: tokio::spawn(room), trigger, health, metrics }
}

impl Running {
    async fn stop(self) -> Result<(), FilterError> {
        self.trigger.request();
        self.task.await.unwrap()
    }

    fn shows(&self, line: &str) -> bool {
        self.metrics.render().lines().any(|other| other.strip_prefix("onlooker_") == Some(line))
    }

    fn reasons(&self) -> Vec<String> {
        self.health.report(false).components.into_iter().filter_map(|c| c.reason).collect()
    }
}

/// Waits (time is simulated) until it is so.
async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        sleep(Duration::from_millis(5)).await;
    }
}

fn judged(servers: &Servers) -> bool {
    let state = servers.state();
    state.views.iter().zip(state.committed.values()).all(|(log, c)| log.len() as i64 == c.offset)
}

/// Verdicts by place; every place has one at most.
fn verdicts(servers: &Servers) -> BTreeMap<(i32, i64), Verdict> {
    let mut found = BTreeMap::new();
    for output in &servers.state().outputs {
        let payload = Some(output.payload.as_slice());
        let (place, verdict) = match output.topic {
            Topic::Counted => {
                let c = decode_counted(payload).unwrap();
                assert_eq!(output.key, format!("{}:{}", c.site, c.item).as_bytes());
                ((c.source_partition, c.source_offset), Verdict::Counted)
            }
            Topic::Ignored => {
                let i = decode_ignored(payload).unwrap();
                ((i.source_partition, i.source_offset), Verdict::Ignored(i.reason))
            }
            _ => {
                let d = decode_dead(payload).unwrap();
                ((d.source_partition, d.source_offset), Verdict::Dead(d.reason))
            }
        };
        assert_eq!(found.insert(place, verdict), None, "{place:?} has two verdicts");
    }
    found
}

#[tokio::test(start_paused = true)]
async fn bad_records_stop_nothing_and_are_kept_as_they_came() {
    let servers = Servers::new(1, 1);
    let good = bytes(&view(1, "a", 100));
    let future = [&[0x08, 2][..], &good[2..]].concat();
    let unknown_site = bytes(&View { site: SiteId::new("other").unwrap(), ..view(1, "a", 100) });
    let bad: [(&[u8], DeadReason); 5] = [
        (b"garbage", DeadReason::Malformed),
        (b"", DeadReason::Empty),
        (&good[..good.len() - 1], DeadReason::Malformed),
        (&future, DeadReason::NewerVersion),
        (&unknown_site, DeadReason::UnknownSite),
    ];
    for (payload, _) in &bad {
        servers.append(0, 100_000, payload);
    }
    servers.state().views[0].push(crate::fake::Record { append_ms: 100_000, key: Vec::new(), payload: None });
    for n in 0..10 {
        servers.append(0, 100_000, &bytes(&view(n, "a", 100)));
    }
    let room = start(&servers, config());
    until("the end", || judged(&servers)).await;
    until("metrics", || room.shows("filter_verdicts_total{outcome=\"counted\"} 10")).await;
    assert!(room.shows("filter_dead_total{reason=\"empty\"} 2"));
    assert!(room.shows("filter_dead_total{reason=\"newer_version\"} 1"));
    room.stop().await.unwrap();

    let state = servers.state();
    let dead: Vec<_> = state.outputs.iter().filter(|o| o.topic == Topic::Dead).collect();
    assert_eq!(dead.len(), 6);
    for (offset, ((payload, reason), output)) in bad.iter().zip(&dead).enumerate() {
        let dead = decode_dead(Some(&output.payload)).unwrap();
        assert_eq!((dead.reason, &dead.payload[..]), (*reason, *payload), "{}", dead.detail);
        assert_eq!((dead.source_topic.as_str(), dead.source_partition), ("views", 0));
        assert_eq!((dead.source_offset, dead.source_append_ms), (offset as i64, 100_000));
        assert_eq!((&dead.key[..], &output.key[..]), (&b"key"[..], &b"key"[..]));
    }
    assert_eq!(decode_dead(Some(&dead[5].payload)).unwrap().reason, DeadReason::Empty);
}

#[tokio::test(start_paused = true)]
async fn a_record_too_large_to_be_reported_whole_is_cut() {
    let servers = Servers::new(1, 1);
    servers.append(0, 100_000, &vec![0xff; 2 << 20]);
    let room = start(&servers, config());
    until("the end", || judged(&servers)).await;
    room.stop().await.unwrap();
    let state = servers.state();
    let dead = decode_dead(Some(&state.outputs[0].payload)).unwrap();
    assert_eq!(dead.payload.len(), 512 << 10);
    assert!(dead.detail.contains("a value of 2097152 bytes"), "{}", dead.detail);
}

#[tokio::test(start_paused = true)]
async fn views_wait_while_the_dedup_store_is_away() {
    let servers = Servers::new(2, 1);
    let room = start(&servers, config());
    until("readiness", || room.health.report(false).ready).await;
    for error in [unavailable("dedup"), PortError::Full { server: "dedup", detail: "OOM".into() }] {
        let full = !matches!(error, PortError::Unavailable { .. });
        servers.state().store_error = Some(error);
        for n in 0..50 {
            let s = if full { 1_000 } else { 100 };
            servers.append(n % 2, s * 1_000, &bytes(&view(n as u8, "a", s)));
        }
        until("the gauge", || room.shows("filter_dedup_unavailable 1")).await;
        let reason = if full { "the dedup store is full" } else { "the dedup store is unavailable" };
        assert_eq!(room.reasons(), [reason]);
        let before = servers.state().outputs.len();
        sleep(Duration::from_secs(600)).await;
        assert_eq!(servers.state().outputs.len(), before, "something was waved through");
        assert!(room.health.report(false).live, "waiting is no reason for a restart");
        servers.state().store_error = None;
        until("the end", || judged(&servers)).await;
        until("readiness", || room.health.report(false).ready).await;
        assert!(room.shows("filter_dedup_unavailable 0"));
    }
    room.stop().await.unwrap();
    assert_eq!(verdicts(&servers).len(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_clean_stop_leaves_nothing_to_be_decided_again() {
    let servers = Servers::new(2, 1);
    for n in 0..200 {
        servers.append(n % 2, 100_000, &bytes(&view(n as u8, "a", 100)));
    }
    let room = start(&servers, config());
    until("some verdicts", || servers.state().outputs.len() >= 20).await;
    room.stop().await.unwrap();
    let state = servers.state();
    for (place, store) in state.stores.iter().enumerate() {
        let committed = state.committed[&(place as i32)].offset;
        assert_eq!(store.applied.map(|a| a.offset), Some(committed));
    }
    assert_eq!(state.left, 1, "the group was not left");
}

#[tokio::test(start_paused = true)]
async fn a_group_without_offsets_is_refused_by_name_until_somebody_sets_them() {
    let servers = Servers::new(2, 1);
    servers.append(0, 100_000, &bytes(&view(1, "a", 100)));
    servers.append(1, 100_000, &bytes(&view(2, "a", 100)));
    servers.state().committed.remove(&0);
    let room = start(&servers, config());
    until("the other partition", || servers.state().committed[&1].offset == 1).await;
    until("the refusal", || room.reasons().iter().any(|r| r.starts_with("partition 0"))).await;
    let reasons = room.reasons();
    assert!(reasons[0].starts_with("partition 0: the group has no committed offset"), "{reasons:?}");
    assert!(reasons[0].contains("`onlooker topics apply --start-groups`"), "{reasons:?}");
    assert!(room.shows("filter_refused_partitions 1"));
    servers.state().committed.insert(0, Committed { offset: 0, note: String::new() });
    until("the end", || judged(&servers)).await;
    until("readiness", || room.health.report(false).ready).await;
    assert!(room.shows("filter_refused_partitions 0"));
    room.stop().await.unwrap();
}

/// A log that begins with what was carried over from another one: a viewer of a moment ago is known, also by the id that
/// a client gave, and everybody else counts.
#[tokio::test(start_paused = true)]
async fn a_log_that_begins_with_claims_of_another_one_knows_its_viewers() {
    let servers = Servers::new(1, 1);
    // Slice 100 begins at 6,000 s. The log that it comes from was in it; its own records are appended in it, too.
    let key = |viewer: u8, item: &str| dedup_key(ViewerHash([viewer; 16]), format!("s:{item}").as_bytes());
    let id = ClientId::new("c1").unwrap();
    let carried = |viewer: u8, item: &str, s: i64, slice: i64| Counted {
        view_id: ViewId([3; 16]),
        site: SiteId::new("s").unwrap(),
        item: ItemId::new(item).unwrap(),
        viewer: ViewerHash([viewer; 16]),
        event_ms: s * 1_000,
        source_partition: 0,
        source_offset: CARRIED_OVER,
        slice,
        slice_s: SLICE_S,
        claim: key(viewer, item),
        id_claim: Some(client_id_key(ViewerHash([viewer; 16]), id.as_str(), format!("s:{item}").as_bytes())),
        rule_version: 1,
    };
    servers.carry_over(6_011_000, &carried(1, "a", 6_005, 100));
    servers.carry_over(6_011_000, &carried(2, "a", 5_995, 99));
    // Too long ago to be wanted.
    servers.carry_over(6_011_000, &carried(3, "a", 5_930, 98));
    let note = Note { slice: 100, slice_s: SLICE_S }.write();
    servers.state().committed.insert(0, Committed { offset: 0, note });
    for (viewer, item, s) in
        [(1, "a", 6_012), (2, "a", 6_013), (3, "a", 6_014), (1, "b", 6_015), (4, "a", 6_016)]
    {
        servers.append(0, s * 1_000, &bytes(&view(viewer, item, s)));
    }
    let retry = View { client_id: Some(id), ..view(2, "a", 6_050) };
    servers.append(0, 6_051_000, &bytes(&retry));
    let room = start(&servers, config());
    until("the end", || judged(&servers)).await;
    let found = verdicts_of_views(&servers);
    let counted = |offset| found[&(0, offset)] == Verdict::Counted;
    assert_eq!([0, 1, 2, 3, 4, 5].map(counted), [false, false, true, true, true, false], "{found:?}");
    room.stop().await.unwrap();
}

/// Verdicts by place, without those that were carried over.
fn verdicts_of_views(servers: &Servers) -> BTreeMap<(i32, i64), Verdict> {
    servers.state().outputs.retain(|output| {
        output.topic != Topic::Counted
            || decode_counted(Some(&output.payload)).unwrap().source_offset != CARRIED_OVER
    });
    verdicts(servers)
}

#[tokio::test(start_paused = true)]
async fn an_offset_that_was_moved_back_is_refused() {
    let servers = Servers::new(1, 1);
    for n in 0..10 {
        servers.append(0, 100_000, &bytes(&view(n, "a", 100)));
    }
    let room = start(&servers, config());
    until("the end", || judged(&servers)).await;
    room.stop().await.unwrap();
    let note = servers.state().committed[&0].note.clone();
    servers.state().committed.insert(0, Committed { offset: 3, note });
    let room = start(&servers, config());
    until("the refusal", || room.reasons().iter().any(|r| r.starts_with("partition 0"))).await;
    assert!(room.reasons().concat().contains("the dedup store stands at 10, beyond the committed offset 3"));
    room.stop().await.unwrap();
    assert_eq!(verdicts(&servers).len(), 10);
}

#[tokio::test(start_paused = true)]
async fn an_offset_that_was_moved_forward_by_hand_is_refused() {
    let servers = Servers::new(1, 1);
    let append = |n| servers.append(0, 100_000, &bytes(&view(n, "a", 100)));
    (0..10).for_each(append);
    let room = start(&servers, config());
    until("the end", || judged(&servers)).await;
    room.stop().await.unwrap();
    let own = servers.state().committed[&0].clone();
    (10..20).for_each(append);
    // As Kafka's command line commits: without a note.
    servers.state().committed.insert(0, Committed { offset: 15, note: String::new() });
    let room = start(&servers, config());
    until("the refusal", || room.reasons().iter().any(|r| r.starts_with("partition 0"))).await;
    assert!(room.reasons().concat().contains("15 was not committed by a filter"), "{:?}", room.reasons());
    room.stop().await.unwrap();
    servers.state().committed.insert(0, own);
    let room = start(&servers, config());
    until("the end", || judged(&servers)).await;
    room.stop().await.unwrap();
    assert_eq!(verdicts(&servers).len(), 20);
}

#[tokio::test(start_paused = true)]
async fn another_slice_length_is_refused_until_the_store_is_flushed() {
    let servers = Servers::new(1, 1);
    for (viewer, s) in [(1, 100), (2, 110), (1, 150), (3, 155)] {
        servers.append(0, s * 1_000, &bytes(&view(viewer, "a", s)));
    }
    let room = start(&servers, config());
    until("the end", || judged(&servers)).await;
    room.stop().await.unwrap();
    let longer = || FilterConfig { slice_s: 90, ..config() };
    let room = start(&servers, longer());
    until("the refusal", || room.reasons().iter().any(|r| r.starts_with("partition 0"))).await;
    assert!(room.reasons().concat().contains("slice_s is 90 and was 60"), "{:?}", room.reasons());
    servers.state().stores[0] = Default::default();
    // Within the window of what was counted before, and beyond it.
    servers.append(0, 170_000, &bytes(&view(3, "a", 170)));
    servers.append(0, 170_000, &bytes(&view(2, "a", 170)));
    until("the end", || judged(&servers)).await;
    room.stop().await.unwrap();
    let verdicts = verdicts(&servers);
    assert_eq!(verdicts[&(0, 4)], Verdict::Ignored(onlooker_event::Reason::RecentView));
    assert_eq!(verdicts[&(0, 5)], Verdict::Counted);
}

#[tokio::test(start_paused = true)]
async fn what_retention_removed_is_said_and_the_rest_is_judged() {
    let servers = Servers::new(1, 1);
    let append = |from: i64, to: i64| {
        for n in from..to {
            servers.append(0, 100_000 + n * 10, &bytes(&view((n % 200) as u8, "a", 100 + n / 100)));
        }
    };
    append(0, 100);
    let room = start(&servers, config());
    until("the end", || judged(&servers)).await;
    room.stop().await.unwrap();
    append(100, 600);
    servers.state().earliest[0] = 500;
    let room = start(&servers, config());
    until("the end", || judged(&servers)).await;
    until("the metric", || room.shows("filter_lost_records_total 400")).await;
    // What was counted before the gap is still known after it.
    let found = verdicts(&servers);
    assert_eq!(found.len(), 200);
    let counted: Vec<i64> =
        found.iter().filter(|(_, v)| **v == Verdict::Counted).map(|((_, o), _)| *o).collect();
    assert_eq!(counted, (0..200).filter(|o| *o < 100).chain(500..600).collect::<Vec<_>>()[..counted.len()]);
    room.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn retention_that_passes_while_a_partition_is_read_loses_only_what_is_gone() {
    let servers = Servers::new(1, 1);
    servers.append(0, 100_000, &bytes(&view(1, "a", 100)));
    servers.append(0, 100_000, &bytes(&view(2, "a", 100)));
    let room = start(&servers, config());
    until("the end", || judged(&servers)).await;
    // The reader stands at 2.
    servers.state().silent = true;
    for n in 3..9 {
        servers.append(0, 101_000, &bytes(&view(n, "a", 101)));
    }
    servers.state().earliest[0] = 4;
    servers.state().silent = false;
    until("the end", || judged(&servers)).await;
    until("the metric", || room.shows("filter_lost_records_total 2")).await;
    assert!(room.shows("filter_syncs_total{cause=\"out_of_range\"} 1"));
    assert_eq!(verdicts(&servers).len(), 6);
    room.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_recreated_topic_is_refused() {
    let servers = Servers::new(1, 1);
    for n in 0..10 {
        servers.append(0, 100_000, &bytes(&view(n, "a", 100)));
    }
    let room = start(&servers, config());
    until("the end", || judged(&servers)).await;
    servers.state().views[0].truncate(4);
    until("the refusal", || room.reasons().iter().any(|r| r.starts_with("partition 0"))).await;
    assert!(
        room.reasons().concat().contains("committed offset 10 lies beyond the log's end 4"),
        "{:?}",
        room.reasons()
    );
    room.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_unreadable_records_is_not_drained_into_the_dead_topic() {
    let servers = Servers::new(1, 1);
    let newer = [&[0x08, 2][..], &bytes(&view(1, "a", 100))[2..]].concat();
    for _ in 0..5_000 {
        servers.append(0, 100_000, &newer);
    }
    let room = start(&servers, config());
    until("the refusal", || room.reasons().iter().any(|r| r.starts_with("partition 0"))).await;
    assert!(
        room.reasons().concat().contains("more than 50 % of the latest records cannot be read"),
        "{:?}",
        room.reasons()
    );
    // It tries again and again, and lets no more through.
    sleep(Duration::from_secs(300)).await;
    let written = servers.state().outputs.len();
    assert!(written < 1_000, "{written} records were given up");
    room.stop().await.unwrap();
    let room = start(&servers, FilterConfig { dead_limit_percent: 100, ..config() });
    until("the end", || judged(&servers)).await;
    room.stop().await.unwrap();
    assert_eq!(verdicts(&servers).len(), 5_000);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_login_ends_the_room() {
    let denied = || PortError::Denied { server: "dedup", detail: "WRONGPASS".into() };
    let servers = Servers::new(1, 1);
    servers.state().store_error = Some(denied());
    let error = start(&servers, config()).task.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "dedup refused the login: WRONGPASS");
    let servers = Servers::new(1, 1);
    servers.state().log_error = Some(denied());
    assert!(start(&servers, config()).task.await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_away_is_waited_for() {
    let servers = Servers::new(1, 1);
    servers.state().log_error = Some(unavailable("log"));
    servers.append(0, 100_000, &bytes(&view(1, "a", 100)));
    let room = start(&servers, config());
    until("the reason", || room.reasons().iter().any(|r| r == "the log is unavailable")).await;
    sleep(Duration::from_secs(600)).await;
    assert!(room.health.report(false).live);
    servers.state().log_error = None;
    until("the end", || judged(&servers)).await;
    until("readiness", || room.health.report(false).ready).await;
    // And when it goes away while it is being read: nothing has stalled.
    sleep(Duration::from_secs(60)).await;
    servers.append(0, 200_000, &bytes(&view(1, "a", 200)));
    servers.state().log_error = Some(unavailable("log"));
    sleep(Duration::from_secs(600)).await;
    servers.state().log_error = None;
    until("the end", || judged(&servers)).await;
    until("readiness", || room.health.report(false).ready).await;
    room.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_falls_silent_ends_the_room() {
    let servers = Servers::new(1, 1);
    let room = start(&servers, config());
    until("readiness", || room.health.report(false).ready).await;
    // Without records silence is what there should be.
    sleep(Duration::from_secs(600)).await;
    assert!(!room.task.is_finished());
    servers.state().silent = true;
    servers.append(0, 100_000, &bytes(&view(1, "a", 100)));
    let error = room.task.await.unwrap().unwrap_err();
    assert!(matches!(error, FilterError::Stalled { partition: 0, awaited: 0, end: 1, .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_former_owner_cannot_write() {
    let servers = Servers::new(1, 1);
    let zombie = start(&servers, config());
    until("readiness", || zombie.health.report(false).ready).await;
    // The zombie never hears of the new generation.
    let owner = start(&servers, config());
    for n in 0..50 {
        servers.append(0, 100_000, &bytes(&view(n, "a", 100)));
    }
    until("the end", || judged(&servers)).await;
    until("a fenced transaction", || !zombie.shows("filter_syncs_total{cause=\"aborted\"} 0")).await;
    assert_eq!(verdicts(&servers).len(), 50);
    assert!(zombie.shows("filter_verdicts_total{outcome=\"counted\"} 0"));
    owner.stop().await.unwrap();
    zombie.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_revoked_partition_is_let_go() {
    let servers = Servers::new(2, 1);
    let (trigger, shutdown) = channel();
    let (health, metrics) = (Health::new(), MetricsHandle::detached().unwrap());
    let mut ports = servers.ports();
    ports.reader.events.push_back(GroupEvent::Revoked { partitions: vec![1] });
    let mut room = Box::pin(run(config(), sites(), ports, health.clone(), shutdown));
    assert!(metrics.within(|| futures::FutureExt::now_or_never(&mut room)).is_none());
    let room = Running { task: tokio::spawn(room), trigger, health, metrics };
    servers.append(0, 100_000, &bytes(&view(1, "a", 100)));
    servers.append(1, 100_000, &bytes(&view(2, "a", 100)));
    until("partition 0", || servers.state().committed[&0].offset == 1).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(servers.state().committed[&1].offset, 0);
    assert!(room.health.report(false).ready, "{:?}", room.reasons());
    room.stop().await.unwrap();
}

/// Faults at every step, kill -9 at any moment, and a store that is emptied in between.
async fn chaos(seed: u64) {
    let servers = Servers::new(2, seed);
    let mut rng = Rng::new(seed ^ 0xc4a0);
    let mut logs: Vec<Vec<reference::Record>> = vec![Vec::new(); 2];
    let mut s = 1_000;
    for _ in 0..300 {
        s += rng.range(0, 2);
        let partition = rng.below(2);
        let viewer = u8::try_from(partition * 3 + rng.below(3)).unwrap();
        let mut view = view(viewer, ["x", "y"][rng.below(2)], s - rng.range(0, 15));
        if rng.chance(20) {
            view.client_id = Some(ClientId::new(["p", "q"][rng.below(2)]).unwrap());
        }
        servers.append(partition, s * 1_000, &bytes(&view));
        logs[partition].push(reference::Record { append_ms: s * 1_000, view: Some(view) });
    }
    servers.state().faults_percent = 10;
    for _ in 0..8 {
        let room = start(&servers, FilterConfig { batch_records: 7, linger_ms: 1, ..config() });
        for _ in 0..rng.below(1_500) {
            yield_now().await;
        }
        if rng.chance(30) {
            let lost = rng.below(2);
            servers.state().stores[lost] = Default::default();
        }
        sleep(Duration::from_millis(u64::try_from(rng.range(0, 400)).unwrap())).await;
        room.task.abort();
    }
    servers.state().faults_percent = 0;
    let room = start(&servers, config());
    until("the end", || judged(&servers)).await;
    room.stop().await.unwrap();
    let found = verdicts(&servers);
    for (partition, log) in logs.iter().enumerate() {
        let expected = reference::verdicts(log, WINDOW_S.into(), SLICE_S.into());
        for (offset, (verdict, _)) in expected.into_iter().enumerate() {
            let place = (i32::try_from(partition).unwrap(), i64::try_from(offset).unwrap());
            assert_eq!(found.get(&place), Some(&verdict), "seed {seed}, {place:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_fails_every_view_has_its_one_verdict() {
    for seed in 0..40 {
        chaos(seed).await;
    }
}
