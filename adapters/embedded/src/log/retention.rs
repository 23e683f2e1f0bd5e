//! Removing what is old or too much, whole segments at a time, and never what a group has not read.

use super::files::FileLayer;
use super::segment::index_path;
use super::writer::Writer;

impl<F: FileLayer> Writer<F> {
    /// Removes the oldest segments as far as age or size want it and the groups allow it.
    pub(crate) fn retain(&mut self) {
        let journal = &self.journal;
        let config = &journal.config;
        let (kind, now_ms, retention_ms) = (journal.kind, journal.files.now_ms(), self.retention_ms());
        let limit = match kind {
            super::config::Kind::Views => config.views_retention_bytes,
            super::config::Kind::Verdicts => config.verdicts_retention_bytes,
        };
        // A hard limit below the wished size is a wish as well.
        let limit = [limit, config.limit_bytes].into_iter().filter(|bytes| *bytes > 0).min();
        let mut pinned = 0;
        loop {
            let (oldest, starts, size) = {
                let state = journal.state();
                let (Some(oldest), Some(next)) = (state.segments.front(), state.segments.get(1)) else {
                    break;
                };
                let starts: Vec<i64> = (0..state.slots.len()).map(|slot| next.start(slot)).collect();
                (oldest.clone(), starts, state.size())
            };
            let old = now_ms.saturating_sub(oldest.last_ms) > retention_ms;
            let large = limit.is_some_and(|limit| size >= limit);
            if !old && !large {
                break;
            }
            let behind = starts.iter().enumerate().find_map(|(slot, end)| {
                let topic = kind.topics()[slot / journal.partitions as usize];
                let partition = slot as u32 % journal.partitions;
                journal.groups.behind(topic, partition, *end)
            });
            if let Some(group) = behind {
                pinned = oldest.length;
                tracing::warn!(
                    journal = kind.name(),
                    group,
                    segment = oldest.number,
                    size_bytes = size,
                    "segment is kept although it is due, because the group has not read it"
                );
                break;
            }
            // One at a time, each durable before the next: a loss of power must not take a younger one and leave an
            // older. A reader that finds no file looks again where it stands.
            let removed =
                journal.files.sync_dir(&journal.dir).and_then(|()| journal.files.remove(&oldest.path));
            if let Err(error) = removed {
                tracing::warn!(journal = kind.name(), segment = oldest.number, %error, "segment was not removed");
                break;
            }
            {
                let mut state = journal.state();
                state.segments.pop_front();
                for (slot, start) in starts.iter().enumerate() {
                    state.raise_start(slot, *start);
                }
            }
            // Worthless without the segment, and overwritten should its number come again.
            let _none = journal.files.remove(&index_path(&oldest.path));
            journal.metrics.removed.get(kind).increment(1);
            tracing::info!(journal = kind.name(), segment = oldest.number, old, "segment removed");
        }
        journal.metrics.pinned.get(kind).set(pinned as f64);
        journal.metrics.size.get(kind).set(journal.state().size() as f64);
    }
}
