//! Steps that several questions share.

pub(super) use crate::clock::now_ms;

use super::Sight;
use anyhow::{Context, Result};
use onlooker_event::{ItemId, ItemKey, SiteId, partition_of};
use onlooker_ports::{Batch, LogObserver, Topic};
use std::ops::Range;
use std::time::Duration;
use tokio::sync::mpsc;

/// Reads ranges of a topic; `take` says whether it wants more.
pub(super) async fn read<S: Sight>(
    sight: &S,
    topic: Topic,
    ranges: &[(i32, Range<i64>)],
    mut take: impl FnMut(&Batch) -> Result<bool>,
) -> Result<()> {
    if ranges.iter().all(|(_, range)| range.is_empty()) {
        return Ok(());
    }
    let (sink, mut batches) = mpsc::channel(4);
    let reading = async {
        let read = sight.log().read(topic, ranges, sink).await;
        read.with_context(|| format!("reading {}", sight.topic(topic)))
    };
    let taking = async {
        while let Some(batch) = batches.recv().await {
            if !take(&batch)? {
                break;
            }
        }
        // The reader ends when it finds nobody.
        drop(batches);
        Ok(())
    };
    tokio::try_join!(reading, taking)?;
    Ok(())
}

/// An item that a person named, with the partition that it lives in.
pub(super) fn place(site: &str, item: &str, partitions: u32) -> Result<(ItemKey, i32)> {
    let site = SiteId::new(site).with_context(|| format!("--site {site:?}"))?;
    let id = ItemId::new(item).with_context(|| format!("item {item:?}"))?;
    let key = ItemKey::new(&site, &id);
    let partition = partition_of(key.as_bytes(), partitions);
    Ok((key, partition))
}

/// As people write it, in UTC.
pub(super) fn time(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| format!("{ms} ms"), |time| format!("{time:.3}"))
}

/// `1h 3m`, `12s`, `80ms`: the two largest units.
pub(super) fn duration(ms: i64) -> String {
    let (d, h, m, s) = (ms / 86_400_000, ms / 3_600_000 % 24, ms / 60_000 % 60, ms / 1_000 % 60);
    match (d, h, m, s) {
        (0, 0, 0, 0) => format!("{}ms", ms.max(0)),
        (0, 0, 0, s) => format!("{s}s"),
        (0, 0, m, s) => format!("{m}m {s}s"),
        (0, h, m, _) => format!("{h}h {m}m"),
        (d, h, _, _) => format!("{d}d {h}h"),
    }
}

/// `90s`, `10m`, `2h`, `7d`, `500ms`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("wants a number with ms, s, m, h or d, e.g. 90s".to_owned()),
    };
    let ms = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_ms));
    ms.map(Duration::from_millis).ok_or_else(|| "wants a number with ms, s, m, h or d, e.g. 90s".to_owned())
}

/// A time, `2026-11-29T00:00Z`, or how long ago, `24h`. Milliseconds since 1970.
pub(super) fn parse_time(text: &str) -> Result<i64, String> {
    if let Ok(ago) = parse_duration(text) {
        return Ok(now_ms() - i64::try_from(ago.as_millis()).unwrap_or(i64::MAX));
    }
    let time: Result<jiff::Timestamp, _> = text.parse();
    time.map(|time| time.as_millisecond())
        .map_err(|_| "wants a time with its zone (2026-11-29T00:00Z) or how long ago (24h)".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        let told = [0, 999, 1_000, 61_000, 3_600_000, 90_061_000].map(duration);
        assert_eq!(told, ["0ms", "999ms", "1s", "1m 1s", "1h 0m", "1d 1h"]);
    }

    #[test]
    fn durations_are_read_with_their_unit() {
        let read = ["90s", "10m", "2h", "7d", "500ms"].map(|text| parse_duration(text).unwrap().as_millis());
        assert_eq!(read, [90_000, 600_000, 7_200_000, 604_800_000, 500]);
        for wrong in ["", "5", "s", "5 s", "-5s", "99999999999999999999s", "99999999999999999d"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
