//! From records to groups: what one batch holds for each item. Needs nothing but the records, so it is done while the
//! batch before is still being applied.

use crate::index::{Index, hash};
use onlooker_event::{DayNumber, DeadReason, partition_of};
use onlooker_ports::{OutgoingBatch, RecordRef, Topic};
use onlooker_proto::{CountedRef, Dead, DecodeError, decode_counted, encode_dead};
use onlooker_stage::spans::{Span, of_record};
use std::ops::Range;

/// One counted view, as far as counting needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) offset: i64,
    /// Of `member`, as a sketch hashes it.
    pub(crate) hash: u64,
    /// The viewer's hash: what is added to the sketches.
    pub(crate) member: [u8; 16],
    /// The UTC day of the view.
    pub(crate) day: DayNumber,
    /// Seconds since 1970.
    pub(crate) append_s: u32,
    item: u32,
}

/// All records of one item in a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ItemGroup {
    /// Of the name.
    pub(crate) hash: u64,
    name: Range<u32>,
    records: Range<u32>,
    /// Days that occur, nearly always one.
    day: DayNumber,
    more_days: Vec<DayNumber>,
}

impl ItemGroup {
    /// Days that occur, in the order in which they came.
    pub(crate) fn days(&self) -> impl ExactSizeIterator<Item = DayNumber> {
        let more = self.more_days.len();
        (0..more + 1).map(|at| if at == 0 { self.day } else { self.more_days[at - 1] })
    }

    fn occurs(&mut self, day: DayNumber) {
        if self.day != day && !self.more_days.contains(&day) {
            self.more_days.push(day);
        }
    }
}

/// A batch, grouped.
#[derive(Debug)]
pub(crate) struct Grouped {
    /// The first record's offset, unreadable ones included.
    pub(crate) first: i64,
    /// Where the log stands after the batch.
    pub(crate) to: i64,
    /// Records, unreadable ones included.
    pub(crate) records: usize,
    /// Append time of the newest record, in milliseconds since 1970.
    pub(crate) newest_ms: i64,
    /// Append time of the oldest record.
    pub(crate) oldest_ms: i64,
    /// What could not be read, wrapped for `views.dead`.
    pub(crate) dead: OutgoingBatch,
    /// Why, one entry each.
    pub(crate) dead_reasons: Vec<DeadReason>,
    pub(crate) items: Vec<ItemGroup>,
    /// Names of items, one behind the other.
    names: Vec<u8>,
    /// By item, by offset within an item.
    seen: Vec<Seen>,
    /// Of views that are traced.
    pub(crate) spans: Vec<Span>,
}

impl Grouped {
    /// An item's records in the order of their offsets.
    pub(crate) fn of(&self, group: &ItemGroup) -> &[Seen] {
        &self.seen[group.records.start as usize..group.records.end as usize]
    }

    /// `site:item`.
    pub(crate) fn name(&self, group: &ItemGroup) -> &[u8] {
        name(&self.names, group)
    }

    /// Bytes of all names together.
    pub(crate) fn name_bytes(&self) -> usize {
        self.names.len()
    }
}

fn name<'a>(names: &'a [u8], group: &ItemGroup) -> &'a [u8] {
    &names[group.name.start as usize..group.name.end as usize]
}

/// Builds a `Grouped`.
#[derive(Debug)]
pub(crate) struct Grouper {
    partition: i32,
    /// How many partitions the keys were spread over; 0: not known.
    partitions: u32,
    /// The topic's name, for dead records.
    topic: Box<str>,
    first: Option<i64>,
    to: i64,
    records: usize,
    newest_ms: i64,
    oldest_ms: i64,
    dead: OutgoingBatch,
    dead_reasons: Vec<DeadReason>,
    index: Index,
    items: Vec<ItemGroup>,
    names: Vec<u8>,
    seen: Vec<Seen>,
    spans: Vec<Span>,
}

impl Grouper {
    pub(crate) fn new(partition: i32, topic: &str) -> Self {
        Self {
            partition,
            partitions: 0,
            topic: topic.into(),
            first: None,
            to: 0,
            records: 0,
            newest_ms: 0,
            oldest_ms: i64::MAX,
            dead: OutgoingBatch::default(),
            dead_reasons: Vec::new(),
            index: Index::default(),
            items: Vec::new(),
            names: Vec::new(),
            seen: Vec::new(),
            spans: Vec::new(),
        }
    }

    /// From here on, records whose key belongs to another one of so many partitions are set aside. 0: none is.
    pub(crate) fn spread_over(mut self, partitions: u32) -> Self {
        self.partitions = partitions;
        self
    }

    /// Records so far, unreadable ones included.
    pub(crate) fn records(&self) -> usize {
        self.records
    }

    /// Bytes of unreadable records so far.
    pub(crate) fn dead_bytes(&self) -> usize {
        self.dead.bytes()
    }

    /// Takes the next record. Offsets rise.
    pub(crate) fn push(&mut self, record: RecordRef<'_>) {
        self.first.get_or_insert(record.offset);
        self.to = record.offset + 1;
        self.records += 1;
        self.newest_ms = self.newest_ms.max(record.append_ms);
        self.oldest_ms = self.oldest_ms.min(record.append_ms);
        if let Some(view) = record.payload.and_then(CountedRef::read) {
            let key = record.key.unwrap_or_default();
            let hash = hash(key);
            // Ids and place of an item that the batch has already were checked with its first record.
            let known = self.find(hash, key).filter(|_| !view.site.contains(&b':'));
            if is_key(key, view.site, view.item)
                && (known.is_some() || (view.has_valid_ids() && self.place_of(key).is_ok()))
            {
                return self.count(
                    &record,
                    (hash, key, known),
                    view.viewer.0,
                    view.event_ms,
                    view.source_offset,
                );
            }
        }
        // The full reader says what is wrong, or reads what our own writers would have written otherwise.
        match read(&record).and_then(|view| self.place_of(view.item).map(|()| view)) {
            Ok(view) => {
                let hash = hash(view.item);
                let item = (hash, view.item, self.find(hash, view.item));
                self.count(&record, item, view.member, view.event_ms, view.source_offset);
            }
            Err(error) => self.bury(&record, &error),
        }
    }

    /// Somebody else's producer, or one that saw the topic with more partitions, may have put a record elsewhere. Counted
    /// here, its item's number would have two owners, and the archive would compare offsets of two partitions.
    fn place_of(&self, item: &[u8]) -> Result<(), DecodeError> {
        if self.partitions == 0 {
            return Ok(());
        }
        match partition_of(item, self.partitions) {
            home if home == self.partition => Ok(()),
            home => {
                let problem = format!("belongs to partition {home}, and was found in {}", self.partition);
                Err(DecodeError::InvalidField { field: "item", problem })
            }
        }
    }

    fn find(&self, hash: u64, item: &[u8]) -> Option<u32> {
        let (items, names) = (&self.items, &self.names);
        self.index.find(hash, |at| name(names, &items[at as usize]) == item)
    }

    /// Takes a view of an item, given as hash, name and place if it has one.
    fn count(
        &mut self,
        record: &RecordRef<'_>,
        (hash, name, known): (u64, &[u8], Option<u32>),
        member: [u8; 16],
        event_ms: i64,
        source_offset: i64,
    ) {
        // Counted in the log that it comes from; the archive has it, below offset 0.
        if source_offset < 0 {
            return;
        }
        self.spans.extend(of_record(
            "counter.apply",
            "views.counted",
            (self.partition, record.offset),
            record.trace,
        ));
        let day = day_of(event_ms);
        let item = known.unwrap_or_else(|| self.add_item(hash, name, day));
        let group = &mut self.items[item as usize];
        group.records.end += 1;
        group.occurs(day);
        self.seen.push(Seen {
            offset: record.offset,
            hash: onlooker_sketch::hash(&member),
            member,
            day,
            append_s: u32::try_from(record.append_ms / 1000).unwrap_or(0),
            item,
        });
    }

    fn add_item(&mut self, hash: u64, item: &[u8], day: DayNumber) -> u32 {
        // A batch has some thousand records, each of which fits into a message.
        let short = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (number, begin) = (short(self.items.len()), short(self.names.len()));
        self.names.extend_from_slice(item);
        let name = begin..short(self.names.len());
        let items = &self.items;
        self.index.insert(hash, number, |at| items[at as usize].hash);
        self.items.push(ItemGroup { hash, name, records: 0..0, day, more_days: Vec::new() });
        number
    }

    fn bury(&mut self, record: &RecordRef<'_>, error: &DecodeError) {
        let (key, payload) = record.to_owned_parts();
        let dead = Dead {
            reason: error.reason(),
            detail: error.to_string(),
            source_topic: self.topic.to_string(),
            source_partition: self.partition,
            source_offset: record.offset,
            source_append_ms: record.append_ms,
            key: key.clone(),
            payload,
        };
        self.dead.push_with(Topic::Dead, &key, |out| encode_dead(&dead, out));
        self.dead.trace_last(record.trace);
        let trace_id = record.trace.map(|trace| tracing::field::display(trace.trace_id()));
        let (partition, offset) = (self.partition, record.offset);
        tracing::debug!(partition, offset, reason = error.reason().as_str(), trace_id, "record is set aside");
        self.dead_reasons.push(error.reason());
    }

    /// What was pushed since the last call, or none if nothing was.
    pub(crate) fn take(&mut self) -> Option<Grouped> {
        let first = self.first.take()?;
        self.index.clear();
        // The next batch will be about as large.
        let (items, names) = (self.items.len(), self.names.len());
        let mut items = std::mem::replace(&mut self.items, Vec::with_capacity(items));
        let names = std::mem::replace(&mut self.names, Vec::with_capacity(names));
        let seen = sort_by_item(&self.seen, &mut items);
        self.seen.clear();
        let grouped = Grouped {
            first,
            to: self.to,
            records: self.records,
            newest_ms: self.newest_ms,
            oldest_ms: self.oldest_ms,
            dead: std::mem::take(&mut self.dead),
            dead_reasons: std::mem::take(&mut self.dead_reasons),
            items,
            names,
            seen,
            spans: std::mem::take(&mut self.spans),
        };
        (self.records, self.newest_ms, self.oldest_ms) = (0, 0, i64::MAX);
        Some(grouped)
    }
}

/// A counting sort, stable: within an item the offsets go on rising.
fn sort_by_item(seen: &[Seen], items: &mut [ItemGroup]) -> Vec<Seen> {
    let mut at = 0;
    for group in items.iter_mut() {
        let records = group.records.end;
        group.records = at..at;
        at += records;
    }
    let Some(filler) = seen.first() else { return Vec::new() };
    let mut sorted = vec![*filler; seen.len()];
    for view in seen {
        let end = &mut items[view.item as usize].records.end;
        sorted[*end as usize] = *view;
        *end += 1;
    }
    sorted
}

/// What counting takes from a record.
#[derive(Debug, PartialEq, Eq)]
struct Counted<'a> {
    /// `site:item`.
    item: &'a [u8],
    member: [u8; 16],
    event_ms: i64,
    /// The view's own, in `views`.
    source_offset: i64,
}

fn read<'a>(record: &RecordRef<'a>) -> Result<Counted<'a>, DecodeError> {
    let view = decode_counted(record.payload)?;
    let item = record.key.unwrap_or_default();
    if !is_key(item, view.site.as_str().as_bytes(), view.item.as_str().as_bytes()) {
        let problem = "is not what the record's key says".to_owned();
        return Err(DecodeError::InvalidField { field: "item", problem });
    }
    let (member, event_ms, source_offset) = (view.viewer.0, view.event_ms, view.source_offset);
    Ok(Counted { item, member, event_ms, source_offset })
}

/// The key decides the partition. A record under another item's key would give the item a second partition, and its
/// number two owners.
fn is_key(key: &[u8], site: &[u8], item: &[u8]) -> bool {
    let rest = key.strip_prefix(site).and_then(|rest| rest.strip_prefix(b":"));
    rest == Some(item)
}

/// The view's day, such that two days never share a key: beyond the years that a key can name there is one day only.
fn day_of(event_ms: i64) -> DayNumber {
    let day = DayNumber::of_ms(event_ms);
    if (0..=1_000_000).contains(&day.0) {
        return day;
    }
    DayNumber::parse_compact(&day.compact()).unwrap_or(day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{counted, record_of};
    use onlooker_ports::BatchBuilder;

    fn grouped(records: &[(i64, &str, u8, i64)]) -> Grouped {
        let mut batch = BatchBuilder::new(0);
        for (offset, item, viewer, event_ms) in records {
            let (key, payload) = counted(item, *viewer, *event_ms);
            batch.push(*offset, *offset * 1000, Some(&key), Some(&payload));
        }
        let mut grouper = Grouper::new(0, "views.counted");
        batch.build().iter().for_each(|record| grouper.push(record));
        grouper.take().unwrap()
    }

    #[test]
    fn records_come_together_by_item_in_order() {
        let day = 86_400_000;
        let g = grouped(&[(3, "a", 1, 0), (4, "b", 2, 0), (7, "a", 3, day), (9, "b", 2, 0), (10, "a", 1, 5)]);
        assert_eq!((g.first, g.to, g.records, g.oldest_ms, g.newest_ms), (3, 11, 5, 3000, 10_000));
        let found: Vec<_> = g
            .items
            .iter()
            .map(|i| {
                (g.name(i).to_vec(), i.days().len(), g.of(i).iter().map(|s| s.offset).collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(found, [(b"s:a".to_vec(), 2, vec![3, 7, 10]), (b"s:b".to_vec(), 1, vec![4, 9])]);
    }

    #[test]
    fn what_cannot_be_read_is_kept_with_its_place_and_passed() {
        let mut batch = BatchBuilder::new(4);
        let (key, good) = counted("a", 1, 0);
        let mut newer = good.clone();
        newer[1] = 2;
        batch.push(10, 1, Some(&key), Some(b"garbage"));
        batch.push(11, 2, Some(&key), Some(b""));
        batch.push(12, 3, Some(&key), None);
        batch.push(13, 4, Some(&key), Some(&newer));
        batch.push(14, 5, Some(b"s:other"), Some(&good));
        batch.push(15, 6, Some(&key), Some(&good[..good.len() / 2]));
        batch.push(16, 7, Some(&key), Some(&good));
        // The same key, cut elsewhere: no site has a colon in its name.
        let (long_key, long) = counted("a:b", 1, 0);
        let mut shifted = long.clone();
        let at = long.windows(7).position(|w| w == b"\x1a\x01s\x22\x03a:").unwrap();
        shifted.splice(at..at + 8, *b"\x1a\x03s:a\x22\x01b");
        batch.push(17, 8, Some(&long_key), Some(&long));
        batch.push(18, 9, Some(&long_key), Some(&shifted));
        let mut grouper = Grouper::new(4, "views.counted");
        batch.build().iter().for_each(|record| grouper.push(record));
        let g = grouper.take().unwrap();
        assert_eq!((g.first, g.to, g.records, g.items.len()), (10, 19, 9, 2));
        use DeadReason::{Empty, InvalidField, Malformed, NewerVersion};
        assert_eq!(
            g.dead_reasons,
            [Malformed, Empty, Empty, NewerVersion, InvalidField, Malformed, InvalidField]
        );
        let dead: Vec<_> =
            g.dead.iter().map(|d| onlooker_proto::decode_dead(Some(d.payload)).unwrap()).collect();
        assert_eq!(dead[3].source_offset, 13);
        assert_eq!((dead[3].source_partition, dead[3].source_topic.as_str()), (4, "views.counted"));
        assert_eq!((&dead[3].key[..], &dead[3].payload[..]), (&key[..], &newer[..]));
        assert!(grouper.take().is_none());
    }

    #[test]
    fn what_lies_in_another_keys_partition_is_set_aside() {
        let mut batch = BatchBuilder::new(1);
        for (offset, item) in (0..).zip(["a", "b", "c", "d", "a", "b", "c", "d"]) {
            let (key, payload) = counted(item, 1, 0);
            batch.push(offset, 1, Some(&key), Some(&payload));
        }
        let mut grouper = Grouper::new(1, "views.counted").spread_over(2);
        batch.build().iter().for_each(|record| grouper.push(record));
        let g = grouper.take().unwrap();
        let at_home = |item: &&str| partition_of(format!("s:{item}").as_bytes(), 2) == 1;
        let items: Vec<_> = ["a", "b", "c", "d"].into_iter().filter(at_home).collect();
        assert!((1..4).contains(&items.len()), "the test wants both kinds");
        let found: Vec<_> = g.items.iter().map(|i| String::from_utf8_lossy(g.name(i)).into_owned()).collect();
        assert_eq!(found, items.iter().map(|item| format!("s:{item}")).collect::<Vec<_>>());
        assert_eq!((g.to, g.records, g.dead.len()), (8, 8, 2 * (4 - items.len())));
        assert!(g.dead_reasons.iter().all(|reason| *reason == DeadReason::InvalidField));
    }

    #[test]
    fn what_was_carried_over_is_passed_and_not_counted() {
        let mut batch = BatchBuilder::new(0);
        let (key, good) = counted("a", 1, 0);
        let mut carried = onlooker_proto::decode_counted(Some(&good)).unwrap();
        carried.source_offset = onlooker_proto::CARRIED_OVER;
        let mut payload = Vec::new();
        onlooker_proto::encode_counted(&carried, &mut payload);
        batch.push(0, 1, Some(&key), Some(&payload));
        batch.push(1, 2, Some(&key), Some(&good));
        batch.push(2, 3, Some(&key), Some(&payload));
        let mut grouper = Grouper::new(0, "views.counted");
        batch.build().iter().for_each(|record| grouper.push(record));
        let g = grouper.take().unwrap();
        assert_eq!((g.to, g.records, g.items.len(), g.dead.len()), (3, 3, 1, 0));
        let offsets: Vec<_> = g.of(&g.items[0]).iter().map(|seen| seen.offset).collect();
        assert_eq!(offsets, [1]);
    }

    #[test]
    fn days_beyond_a_key_are_one() {
        let (far, farther) = (day_of(i64::MAX), day_of(i64::MAX / 2));
        assert_eq!(far, farther);
        assert_eq!(far.compact(), *b"99991231");
        assert_eq!(day_of(-100_000_000_000_000).compact(), *b"00000101");
        assert_eq!(day_of(-1), DayNumber(-1));
    }

    #[test]
    fn the_test_helper_makes_readable_records() {
        let (key, payload) = counted("a:b", 7, 1);
        let read = read(&record_of(1, &key, &payload)).unwrap();
        assert_eq!(read, Counted { item: b"s:a:b", member: [7; 16], event_ms: 1, source_offset: 1 });
    }
}
