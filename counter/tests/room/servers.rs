//! The room on the models of its servers: what it does when each of them is away, and what it leaves alone.

use crate::house::{DAY, House, key, member, record, until};
use onlooker_counter::LostRecords;
use onlooker_event::{CountKey, DayNumber, DeadReason, Scope};
use onlooker_model::Fate;
use onlooker_ports::Topic;
use onlooker_sketch::Sketch;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn views_are_counted_per_item_and_day() {
    let mut house = House::new();
    let counter = house.count(&[0, 1]);
    for viewer in 0..100 {
        house.view(0, "a", viewer);
        house.view(0, "b", viewer % 10);
        house.view(1, "z", viewer % 50);
    }
    house.until_caught_up().await;
    house.check();
    let day = CountKey::new(Scope::Day(DayNumber(DAY)), b"s:b");
    assert_eq!(house.counts.with(0, |c| c.numbers[&day].n), 100);
    assert_eq!(house.counts.with(0, |c| c.as_of_ms), 1_700_000_000_000);
    until("ready", || counter.ready()).await;
    counter.stop().await;
}

#[tokio::test(start_paused = true)]
async fn counting_touches_the_archive_only_for_what_the_store_does_not_hold() {
    let mut house = House::new();
    house.config.durable_ms = 3_600_000;
    let counter = house.count(&[0, 1]);
    for item in 0..20 {
        house.view(0, &item.to_string(), 1);
    }
    house.view(1, "known", 1);
    house.until_caught_up().await;
    // One reading for all new items of a batch, after the look-up.
    let reads = house.archive.journal.count("read");
    assert!((1..=21).contains(&reads), "{reads}");
    house.archive.journal.clear();
    for viewer in 0..200 {
        house.view(0, &(viewer % 20).to_string(), viewer);
    }
    house.until_caught_up().await;
    sleep(600 * SECOND).await;
    assert_eq!(house.archive.journal.asked(), [], "neither counting nor idling reads it");
    // Down altogether: what the store holds goes on being counted.
    house.archive.journal.judge(|_, _| Fate::Lost);
    for viewer in 0..200 {
        house.view(0, &(viewer % 20).to_string(), viewer + 1000);
    }
    house.until_caught_up().await;
    assert!(counter.ready());
    // What it does not hold waits, and its partition with it, and no other.
    house.view(0, "new", 1);
    until("not ready", || !counter.ready()).await;
    assert_eq!(counter.reasons(), ["waiting for the archive"]);
    for viewer in 0..1000 {
        house.view(0, "new", viewer);
        house.view(1, "known", viewer);
    }
    until("the other partition", || house.counts.with(1, |c| c.applied) == Some(house.log.end(1))).await;
    assert!(!house.caught_up());
    house.archive.journal.heal();
    house.until_caught_up().await;
    until("ready", || counter.ready()).await;
    house.check();
    counter.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_misses_are_one_reading_each() {
    let mut house = House::new();
    let (stop_flusher, flusher) = house.flush();
    let counter = house.count(&[0, 1]);
    for item in 0..1000 {
        house.view(0, &item.to_string(), 1);
    }
    house.until_caught_up().await;
    until("durable", || house.durable(0) == Some(1000)).await;
    assert_eq!(house.evict_all(), 2000);
    let keys_before = house.archive.journal.keys_read();
    for item in 0..1000 {
        for viewer in 2..5 {
            house.view(0, &item.to_string(), viewer);
        }
    }
    house.until_caught_up().await;
    assert_eq!(house.archive.journal.keys_read() - keys_before, 2000, "two scopes of each item, once");
    house.check();
    counter.stop().await;
    stop_flusher.request();
    flusher.await.unwrap().unwrap();
    house.check_archive();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_or_full_is_waited_for() {
    for fate in [Fate::Lost, Fate::Unanswered, Fate::Full] {
        let mut house = House::new();
        let counter = house.count(&[0, 1]);
        for viewer in 0..50 {
            house.view(0, "a", viewer);
        }
        house.until_caught_up().await;
        house.counts.journal.judge(move |method, _| if method == "apply" { fate } else { Fate::Well });
        for viewer in 0..50 {
            house.view(0, "b", viewer);
            house.view(0, "a", viewer + 20);
        }
        until("not ready", || !counter.ready()).await;
        sleep(30 * SECOND).await;
        house.counts.journal.heal();
        house.until_caught_up().await;
        until("ready", || counter.ready()).await;
        house.check();
        counter.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_partition_does_not_hold_up_the_others() {
    let mut house = House::new();
    house.config.applies_at_once = 1;
    let counter = house.count(&[0, 1]);
    house.view(0, "a", 1);
    house.view(1, "z", 1);
    house.until_caught_up().await;
    house.counts.slow(0, 20 * SECOND);
    for viewer in 0..1000 {
        house.view(0, "a", viewer);
        house.view(1, "z", viewer);
    }
    let start = Instant::now();
    until("the quick one", || house.counts.with(1, |c| c.applied) == Some(1001)).await;
    assert!(start.elapsed() < 10 * SECOND, "{:?}", start.elapsed());
    assert!(!house.caught_up());
    house.until_caught_up().await;
    house.check();
    counter.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lost_everything_is_filled_again() {
    let mut house = House::new();
    let (_stop, _flusher) = house.flush();
    let counter = house.count(&[0, 1]);
    for round in 0..10 {
        for viewer in 0..30 {
            house.view(0, &(viewer % 7).to_string(), viewer * round);
            house.view(1, "z", viewer);
        }
        sleep(Duration::from_millis(u64::from(round) * 777)).await;
        house.counts.flush_all();
    }
    house.until_caught_up().await;
    house.check();
    // On a quiet partition as well, and readers are told until when counts may be low.
    house.counts.flush_all();
    house.until_caught_up().await;
    house.check();
    assert_eq!(house.counts.with(0, |c| c.whole_at), house.log.end(0));
    counter.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_set_aside_and_passed() {
    let mut house = House::new();
    house.log.refuse_appends(true);
    let counter = house.count(&[0, 1]);
    let (item, good) = record("a", 1, DAY);
    let mut newer = good.clone();
    newer[1] = 200;
    newer.insert(2, 1);
    for bad in [Some(&b"garbage"[..]), Some(b""), None, Some(&newer), Some(&good[..good.len() / 2])] {
        house.log.push(0, 5, Some(&item), bad);
    }
    for viewer in 0..10 {
        house.view(0, "a", viewer);
    }
    until("not ready", || counter.reasons() == ["waiting for the log"]).await;
    assert_eq!(house.counts.with(0, |c| c.applied), Some(0), "the offset does not pass what is nowhere else");
    house.log.refuse_appends(false);
    house.until_caught_up().await;
    house.check();
    let dead: Vec<_> = house
        .log
        .appended()
        .into_iter()
        .map(|(topic, key, value)| {
            assert_eq!((topic, key), (Topic::Dead, item.clone()));
            let dead = onlooker_proto::decode_dead(Some(&value)).unwrap();
            (dead.source_offset, dead.reason)
        })
        .collect();
    use DeadReason::{Empty, Malformed, NewerVersion};
    assert_eq!(dead, [(0, Malformed), (1, Empty), (2, Empty), (3, NewerVersion), (4, Malformed)]);
    counter.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_unreadable_records_stops_the_partition() {
    let mut house = House::new();
    let counter = house.count(&[0, 1]);
    for _ in 0..5_000 {
        house.log.push(0, 5, Some(b"s:a"), Some(b"garbage"));
    }
    house.view(1, "z", 1);
    let reason = "most records cannot be read: is a newer version of onlooker writing?";
    until("the alarm", || counter.reasons() == [reason]).await;
    sleep(60 * SECOND).await;
    assert!(house.log.appended().len() <= 1_000);
    assert_eq!(house.counts.with(1, |c| c.applied), Some(1), "the other partition goes on");
    counter.stop().await;
}

#[tokio::test(start_paused = true)]
async fn records_that_are_lost_stop_the_partition_until_a_person_decides() {
    let mut house = House::new();
    let counter = house.count(&[0, 1]);
    house.view(0, "a", 1);
    house.until_caught_up().await;
    counter.stop().await;
    // Two records pass away unread.
    let (item, payload) = record("lost", 1, DAY);
    (0..2).for_each(|_| _ = house.log.push(0, 5, Some(&item), Some(&payload)));
    house.log.delete_before(0, 3);
    house.view(0, "a", 2);

    let counter = house.count(&[0, 1]);
    until("the alarm", || counter.reasons() == ["the log has lost the records that come next"]).await;
    sleep(60 * SECOND).await;
    assert!(!counter.ready());
    assert_eq!(house.counts.with(0, |c| c.applied), Some(1));
    counter.stop().await;

    house.config.lost_records = LostRecords::Skip;
    let counter = house.count(&[0, 1]);
    house.until_caught_up().await;
    until("ready", || counter.ready()).await;
    house.check();
    counter.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lost_records_that_the_archive_has_are_cured_by_emptying_the_store() {
    let mut house = House::new();
    let (_stop, _flusher) = house.flush();
    let counter = house.count(&[0, 1]);
    for viewer in 0..10 {
        house.view(0, "a", viewer);
    }
    house.until_caught_up().await;
    until("durable", || house.durable(0) == Some(10)).await;
    counter.stop().await;
    // The store falls back to an earlier state, behind retention.
    house.counts.with(0, |c| c.applied = Some(4));
    house.log.delete_before(0, 8);
    let counter = house.count(&[0, 1]);
    until("the alarm", || !counter.reasons().is_empty() && !counter.ready()).await;
    house.counts.flush_all();
    house.until_caught_up().await;
    until("ready", || counter.ready()).await;
    house.check();
    counter.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_readers_ask_for_is_restored_or_known_to_be_absent() {
    let mut house = House::new();
    let (_stop, _flusher) = house.flush();
    let counter = house.count(&[0, 1]);
    for viewer in 0..10 {
        house.view(0, "a", viewer);
    }
    house.until_caught_up().await;
    until("durable", || house.durable(0) == Some(10)).await;
    house.evict_all();
    house.counts.with(0, |c| {
        // The janitor has been here, too.
        c.sweep(u32::MAX);
        assert!(c.numbers.is_empty() && c.sketches.is_empty());
        c.wanted.extend([key("a"), key("nobody")]);
    });
    until("restored", || house.counts.with(0, |c| c.sketches.contains_key(&key("a")))).await;
    house.counts.with(0, |c| {
        assert_eq!(c.numbers[&key("a")].n, 10);
        assert!(c.numbers[&key("a")].changed_s > 1_700_000_000, "wanted now, so not swept at once");
        assert_eq!(c.absent.iter().collect::<Vec<_>>(), [&key("nobody")]);
        assert!(!c.sketches.contains_key(&key("nobody")));
    });
    house.check();
    // Wishes wait for a slow archive only a moment, and counting goes on.
    house.evict_all();
    house.archive.journal.judge(|_, _| Fate::Lost);
    house.counts.with(0, |c| c.wanted.insert(key("a")));
    house.view(1, "z", 1);
    house.archive.journal.heal();
    house.until_caught_up().await;
    house.counts.with(0, |c| c.wanted.insert(key("a")));
    until("restored", || house.counts.with(0, |c| c.sketches.contains_key(&key("a")))).await;
    house.check();
    counter.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_damaged_archived_sketch_stops_nothing_and_is_not_overwritten() {
    let mut house = House::new();
    let (stop, flusher) = house.flush();
    let counter = house.count(&[0, 1]);
    for viewer in 0..10 {
        house.view(0, "a", viewer);
        house.view(0, "b", viewer);
    }
    house.until_caught_up().await;
    until("durable", || house.durable(0) == Some(20)).await;
    house.evict_all();
    let damaged = bytes::Bytes::from_static(b"HYLL\x01\0\0\0garbage");
    house.archive.with(|a| a.rows.get_mut(&key("a")).unwrap().sketch.as_mut().unwrap().0 = damaged.clone());
    for viewer in 10..20 {
        house.view(0, "a", viewer);
        house.view(0, "b", viewer);
    }
    house.until_caught_up().await;
    house.counts.with(0, |c| c.wanted.insert(key("a")));
    until("durable", || house.durable(0) == Some(40)).await;
    assert_eq!(house.archive.with(|a| a.read(&key("a")).sketch.unwrap().0), damaged);
    assert_eq!(house.counts.with(0, |c| c.numbers[&key("a")].n), 20, "the number goes on");
    assert!(!house.counts.with(0, |c| c.sketches.contains_key(&key("a"))));
    assert!(house.counts.with(0, |c| c.sketches.contains_key(&key("b"))));
    assert!(counter.ready());
    counter.stop().await;
    stop.request();
    flusher.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_changed_sketch_that_somebody_removed_stops_nothing_and_comes_back_from_the_log() {
    let mut house = House::new();
    let (_stop, _flusher) = house.flush();
    let counter = house.count(&[0, 1]);
    for viewer in 0..10 {
        house.view(0, "a", viewer);
        house.view(0, "b", viewer);
    }
    house.until_caught_up().await;
    house.counts.with(0, |c| c.sketches.remove(&key("a")));
    let durable = house.durable(0);
    for viewer in 5..15 {
        house.view(0, "a", viewer);
        house.view(0, "b", viewer);
    }
    house.until_caught_up().await;
    sleep(60 * SECOND).await;
    assert_eq!(house.durable(0), durable, "nothing more is durable");
    assert_eq!(house.counts.with(0, |c| c.numbers[&key("a")].n), 20);
    house.counts.flush_all();
    house.until_caught_up().await;
    house.check();
    counter.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_durable_is_committed_and_never_started_from() {
    let mut house = House::new();
    let (stop, flusher) = house.flush();
    let counter = house.count(&[0, 1]);
    for viewer in 0..10 {
        house.view(0, "a", viewer);
    }
    until("committed", || house.log.committed(0) == Some(10)).await;
    // Applied is not durable: without a flusher the log keeps what is not in the archive.
    stop.request();
    flusher.await.unwrap().unwrap();
    house.view(0, "a", 10);
    house.until_caught_up().await;
    let asks = || house.archive.journal.count("durable") + house.counts.journal.count("applied");
    let asked = asks();
    until("asked again what is durable", || asks() > asked + 4).await;
    assert_eq!(house.log.committed(0), Some(10));
    counter.stop().await;
    // A committed offset that is far off, and none at all, as of a group that expired.
    let counter = house.count(&[0, 1]);
    house.view(0, "a", 99);
    house.until_caught_up().await;
    house.check();
    counter.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_partition_moves_between_counters_under_load() {
    let mut house = House::new();
    let (_stop, _flusher) = house.flush();
    let (one, two) = (house.count(&[0, 1]), house.count(&[]));
    let mut owners = [&one, &two];
    for round in 0..50u32 {
        for viewer in 0..20 {
            house.view(0, &(viewer % 3).to_string(), viewer * round);
        }
        if round % 3 == 0 {
            // A zombie: the other one begins before this one knows.
            owners[1].assignment.assign(&[0]);
            sleep(Duration::from_millis(40)).await;
            owners[0].assignment.revoke(&[0]);
        } else {
            owners[0].assignment.revoke(&[0]);
            owners[1].assignment.assign(&[0]);
        }
        owners.swap(0, 1);
        sleep(Duration::from_millis(u64::from(round % 7) * 30)).await;
    }
    house.until_caught_up().await;
    house.check();
    one.stop().await;
    two.stop().await;
}

#[tokio::test(start_paused = true)]
async fn transaction_markers_are_passed() {
    let mut house = House::new();
    let counter = house.count(&[0, 1]);
    for viewer in 0..5 {
        house.view(0, "a", viewer);
        house.log.marker(0);
    }
    house.log.marker(1);
    house.until_caught_up().await;
    house.check();
    // On a quiet partition "as of" goes on: the log's end was seen.
    let seen = house.counts.with(1, |c| c.as_of_ms);
    until("as of", || house.counts.with(1, |c| c.as_of_ms) > seen.max(1_700_000_000_000)).await;
    counter.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_store_that_is_away() {
    let mut house = House::new();
    let counter = house.count(&[0, 1]);
    house.view(0, "a", 1);
    house.until_caught_up().await;
    house.counts.journal.judge(|_, _| Fate::Lost);
    house.archive.journal.judge(|_, _| Fate::Lost);
    house.view(0, "a", 2);
    until("not ready", || !counter.ready()).await;
    let asked = Instant::now();
    counter.stop().await;
    assert!(asked.elapsed() <= Duration::from_millis(house.config.drain_ms));
}

#[tokio::test(start_paused = true)]
async fn a_hot_sketch_is_sent_few_members_and_loses_none() {
    let mut house = House::new();
    let counter = house.count(&[0, 1]);
    let mut expected = Sketch::new();
    for _ in 0..3 {
        for viewer in 0..500 {
            house.view(0, "hot", viewer);
            expected.add(&member(viewer));
        }
        house.until_caught_up().await;
    }
    house.check();
    counter.stop().await;
}
