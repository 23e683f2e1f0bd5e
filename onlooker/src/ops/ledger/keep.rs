//! The ledger as a metric, brought up to date from time to time.

use super::super::Sight;
use super::super::look::now_ms;
use super::book::Book;
use super::metrics::LedgerMetrics;
use super::reading::Reading;
use onlooker_stage::Shutdown;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::time::Duration;

/// `[ledger]`: how often it is checked that every view has one outcome.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LedgerConfig {
    /// Seconds between two looks, each of which reads what is new of `views` and of all outcomes. 0: never.
    pub(crate) every_s: u64,
    /// How far back the first look of a process begins. Seconds.
    pub(crate) back_s: u64,
}

impl Default for LedgerConfig {
    fn default() -> Self {
        Self { every_s: 300, back_s: 7_200 }
    }
}

const HOUR_MS: i64 = 3_600_000;
/// Hours that are remembered.
const KEPT_MS: i64 = 48 * HOUR_MS;
/// After a look that a server did not let be.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// A view may arrive in the log so long after it was received. Milliseconds.
const LATE_MS: i64 = 300_000;

/// Runs until it is told to stop. What cannot be read now is read next time.
pub(crate) async fn keep<S: Sight>(
    sight: S,
    config: LedgerConfig,
    sites: impl IntoIterator<Item = String>,
    stop: Shutdown,
) -> Result<(), Infallible> {
    if config.every_s == 0 {
        stop.requested().await;
        return Ok(());
    }
    let (metrics, sites) = (LedgerMetrics::register(), sites.into_iter().collect());
    let mut reading = None;
    let looks = async {
        loop {
            let every = Duration::from_secs(config.every_s);
            let pause = match look(&sight, &config, &mut reading).await {
                Ok(reading) => {
                    reading.book.forget(now_ms() - KEPT_MS);
                    tell(&metrics, &sites, &reading.book, now_ms());
                    every
                }
                Err(error) => {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "the ledger could not be brought up to date"
                    );
                    every.min(LOOK_AGAIN)
                }
            };
            tokio::time::sleep(pause).await;
        }
    };
    tokio::select! {
        () = looks => {}
        () = stop.requested() => {}
    }
    Ok(())
}

async fn look<'a, S: Sight>(
    sight: &S,
    config: &LedgerConfig,
    reading: &'a mut Option<Reading>,
) -> anyhow::Result<&'a mut Reading> {
    let reading = match reading {
        Some(reading) => reading,
        None => {
            let back_ms = i64::try_from(config.back_s.saturating_mul(1_000)).unwrap_or(i64::MAX);
            reading.insert(Reading::begin(sight, now_ms().saturating_sub(back_ms)).await?)
        }
    };
    reading.catch_up(sight).await?;
    Ok(reading)
}

/// By how much the hours that are over do not close, by site.
fn open(book: &Book, now_ms: i64) -> BTreeMap<String, i64> {
    let mut open = BTreeMap::new();
    for (site, hour_ms, sums) in book.sheet() {
        if hour_ms + HOUR_MS + LATE_MS <= now_ms {
            *open.entry(site.to_owned()).or_default() += sums.open();
        }
    }
    open
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of our time are exact in a float")]
fn tell(metrics: &LedgerMetrics, sites: &HashSet<String>, book: &Book, now_ms: i64) {
    let open = open(book, now_ms);
    let values: Vec<(&str, i64)> = open.iter().map(|(site, open)| (site.as_str(), *open)).collect();
    metrics.open.set(sites, &values);
    metrics.checked.set(now_ms as f64 / 1_000.0);
    for (site, open) in open.iter().filter(|(_, open)| **open != 0) {
        tracing::error!(site, open, "the ledger does not close, see onlooker ledger");
    }
}

#[cfg(test)]
mod tests {
    use super::super::book::Outcome;
    use super::*;
    use crate::wiring::embedded::{EmbeddedConfig, Store};
    use onlooker_event::{Facts, ItemId, SiteId, View, ViewId, ViewerHash};
    use onlooker_ports::{LogWriter, OutgoingBatch, Position, Topic};
    use onlooker_proto::{Counted, encode_counted, encode_view};

    fn view(received_ms: i64) -> View {
        View {
            view_id: ViewId([1; 16]),
            site: SiteId::new("blog").unwrap(),
            item: ItemId::new("a").unwrap(),
            viewer: ViewerHash([2; 16]),
            key_version: 1,
            event_ms: received_ms,
            received_ms,
            client_id: None,
            user_agent: None,
            referrer: None,
            facts: Facts(0),
        }
    }

    async fn append(store: &Store, topic: Topic, payload: &[u8]) {
        let mut batch = OutgoingBatch::default();
        batch.push(topic, b"k", payload);
        store.collector_log().append(batch).await.unwrap();
    }

    async fn judge(store: &Store, offset: i64) {
        store.judge_from(&[Position { partition: 0, offset, note: String::new() }]).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn only_what_is_new_is_read_and_what_was_passed_is_missed() {
        let folder = tempfile::tempdir().unwrap();
        let config =
            EmbeddedConfig { dir: folder.path().join("data"), partitions: 1, ..EmbeddedConfig::default() };
        let store = Store::open(&config).await.unwrap();
        let (sight, settings) = (store.sight(), LedgerConfig::default());
        let received_ms = now_ms() - 2 * HOUR_MS;
        let mut bytes = Vec::new();
        encode_view(&view(received_ms), &mut bytes);
        let mut reading = None;
        let open_now =
            |reading: &Option<Reading>| open(&reading.as_ref().unwrap().book, now_ms()).get("blog").copied();

        for _ in 0..3 {
            append(&store, Topic::Views, &bytes).await;
        }
        look(&sight, &settings, &mut reading).await.unwrap();
        assert_eq!(open_now(&reading), None, "nothing was judged");

        let counted = |source_offset| {
            let View { view_id, site, item, viewer, event_ms, .. } = view(received_ms);
            let counted = Counted {
                view_id,
                site,
                item,
                viewer,
                event_ms,
                source_partition: 0,
                source_offset,
                slice: 0,
                slice_s: 3_600,
                claim: onlooker_event::Digest128([0; 16]),
                id_claim: None,
                rule_version: 1,
            };
            let mut bytes = Vec::new();
            encode_counted(&counted, &mut bytes);
            bytes
        };
        append(&store, Topic::Counted, &counted(0)).await;
        append(&store, Topic::Counted, &counted(-1)).await;
        judge(&store, 2).await;
        look(&sight, &settings, &mut reading).await.unwrap();
        assert_eq!(open_now(&reading), Some(1), "one of two that were passed has an outcome");

        append(&store, Topic::Counted, &counted(1)).await;
        look(&sight, &settings, &mut reading).await.unwrap();
        assert_eq!(open_now(&reading), Some(0));

        append(&store, Topic::Counted, &counted(1)).await;
        look(&sight, &settings, &mut reading).await.unwrap();
        assert_eq!(open_now(&reading), Some(-1));
        let sheet = reading.as_ref().unwrap().book.sheet();
        assert_eq!((sheet[0].2.accepted, sheet[0].2.counted), (2, 2), "a look counts nothing twice");
        drop(sight);
        store.close().await;
    }

    #[test]
    fn an_hour_that_is_not_over_is_not_told() {
        let mut book = Book::new(&[0]);
        let noon = 12 * HOUR_MS;
        book.view((0, 0), "blog", noon, true);
        let whose = || ("shop".to_owned(), noon);
        book.outcome((0, 1), Outcome::Counted, whose);
        book.outcome((0, 1), Outcome::Counted, whose);
        assert!(open(&book, noon + HOUR_MS).is_empty());
        let told: Vec<_> = open(&book, noon + HOUR_MS + LATE_MS).into_iter().collect();
        assert_eq!(told, [("blog".to_owned(), 1), ("shop".to_owned(), -1)]);
    }
}
