//! A journal's thread: takes what waits, writes it as one entry, syncs once, shows it to readers, answers.

use super::config::{Durability, Kind};
use super::encode::{Block, Built, Encoded};
use super::error::{OpenError, from_io, full};
use super::files::{FileLayer, LogFile, read_exact, write_all};
use super::format::{Entry, Kept, Place, SegmentHeader, VERSION};
use super::journal::Journal;
use super::queue::{Refusal, Request, Work};
use super::segment::{Mark, Segment, segment_path};
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often retention looks at a journal that nobody appends to.
const IDLE: Duration = Duration::from_secs(60);

/// How often a journal that failed is tried although nobody appends to it: those who send to us may be waiting for our
/// saying that we are well.
const PROBE: Duration = Duration::from_secs(1);

/// Larger entries get no room made ahead.
const LARGE_ENTRY: u64 = 64 << 10;
/// Room is made for so many entries of the last one's size, within these bytes.
const ENTRIES_AHEAD: u64 = 32;
const ROOM: std::ops::Range<u64> = 64 << 10..1 << 20;

/// A clock that is corrected by more is worth a word.
const CLOCK_SLACK_MS: i64 = 60_000;

/// What is known of the file's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    /// It is where we believe.
    Sound,
    /// Part of an entry stands behind it, and could not be cut off.
    Littered,
    /// A sync failed: the system may have dropped what was written since the last one, and would not say so again.
    Doubtful,
}

/// The journal's file as its only writer knows it.
#[derive(Debug)]
pub(crate) struct Writer<F: FileLayer> {
    pub(crate) journal: Arc<Journal<F>>,
    file: F::File,
    /// The file's; an older one takes no more.
    version: u16,
    number: u64,
    made_ms: i64,
    header_length: u64,
    /// The end of the last whole entry.
    position: u64,
    /// All before it is durable.
    synced: u64,
    /// Behind the end there are zeros up to here.
    room: u64,
    tail: Tail,
    pub(crate) last_ms: i64,
    /// Each slot's next offset.
    ends: Vec<i64>,
}

impl<F: FileLayer> Writer<F> {
    /// Goes on where the journal ends.
    pub(crate) fn open(journal: Arc<Journal<F>>) -> Result<Self, OpenError> {
        let (segment, ends) = {
            let state = journal.state();
            let ends = state.slots.iter().map(|slot| slot.end).collect();
            (state.segments.back().cloned(), ends)
        };
        let path = segment.as_ref().map_or_else(|| journal.dir.clone(), |segment| segment.path.clone());
        let missing = || OpenError::damaged(&path, 0, "no file to append to");
        let segment = segment.as_ref().ok_or_else(missing)?;
        let ahead_ms = segment.last_ms - journal.files.now_ms();
        if ahead_ms > CLOCK_SLACK_MS {
            let journal = journal.kind.name();
            tracing::warn!(
                journal,
                ahead_ms,
                "clock is behind the log's last append; append times stand still until it is not"
            );
        }
        let file = journal.files.open(&path, false).map_err(OpenError::io(&path))?;
        Ok(Self {
            file,
            version: segment.version,
            number: segment.number,
            made_ms: segment.made_ms,
            header_length: segment.header_length(),
            position: segment.length,
            synced: segment.length,
            room: segment.length,
            tail: Tail::Sound,
            last_ms: segment.last_ms,
            ends,
            journal,
        })
    }

    /// Works until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        loop {
            let healthy = self.journal.healthy.load(Ordering::Relaxed);
            match self.journal.queue.take(if healthy { IDLE } else { PROBE }) {
                Work::Requests(requests) => self.serve(requests),
                Work::Idle if healthy => self.rest(),
                Work::Idle => self.probe(),
                Work::Closed => break,
            }
        }
        if let Err(error) = self.finish() {
            tracing::warn!(journal = self.journal.kind.name(), %error, "journal was not closed in good order");
        }
    }

    /// Appends nothing, as durably as anything.
    fn probe(&mut self) {
        let outcome = self.append(vec![self.nothing()], true);
        self.journal.healthy.store(outcome.is_ok(), Ordering::Relaxed);
    }

    fn nothing(&self) -> Encoded {
        let nothing = onlooker_ports::OutgoingBatch::default();
        Encoded::new(self.journal.kind, self.journal.partitions, &nothing, std::iter::empty(), 0)
    }

    fn power(&self) -> bool {
        self.journal.config.durability == Durability::Power
    }

    fn serve(&mut self, requests: Vec<Request>) {
        let mut bytes = 0;
        let mut sync = false;
        let mut batches = Vec::with_capacity(requests.len());
        let mut waiting = Vec::with_capacity(requests.len());
        for Request { encoded, membership, sync: wants_sync, floors, done } in requests {
            bytes += encoded.bytes();
            if !floors.is_empty() {
                let raised = self.raise(&floors).map_err(|error| from_io(&error, "beginning a file"));
                let _gone = done.send(raised.map_err(Refusal::Nothing));
                continue;
            }
            // Checked here, where commits are in line: a new owner that asks how far the group is stands behind us.
            if membership.is_some_and(|membership| !self.journal.groups.is_current(&membership)) {
                let _gone = done.send(Err(Refusal::Stale));
                continue;
            }
            if !encoded.is_empty() {
                sync |= wants_sync;
                batches.push(encoded);
            }
            waiting.push(done);
        }
        let outcome = if batches.is_empty() { Ok(()) } else { self.append(batches, sync) };
        self.journal.healthy.store(outcome.is_ok(), Ordering::Relaxed);
        let left = self.journal.queue.release(bytes);
        self.journal.metrics.queued.get(self.journal.kind).set(left as f64);
        for done in waiting {
            let _gone = done.send(outcome.clone());
        }
    }

    /// Writes one entry; on `Ok` it is as durable as configured and shown.
    fn append(&mut self, batches: Vec<Encoded>, sync: bool) -> Result<(), Refusal> {
        self.make_ready()?;
        let journal = Arc::clone(&self.journal);
        let mut built = Built::new(batches, self.ends.len());
        let append_ms = journal.files.now_ms().max(self.last_ms);
        let place = Place { folder: journal.folder, segment: self.number, position: self.position };
        built.seal(journal.kind, journal.partitions, place, self.synced, append_ms, &self.ends);
        if let Err(error) = write_all(&self.file, &built.bytes, self.position) {
            self.fault("write", &error);
            // What was written of it must not stay: a later entry would stand behind rubbish.
            if let Err(error) = self.file.set_len(self.position) {
                self.fault("cut", &error);
                self.tail = Tail::Littered;
            }
            self.room = self.position;
            return Err(Refusal::Nothing(from_io(&error, "writing")));
        }
        let durable = sync && self.power();
        let position = self.position + built.bytes.len() as u64;
        if durable {
            self.make_room(position, built.bytes.len() as u64);
            if let Err(error) = self.sync_file() {
                return Err(Refusal::Unknown(from_io(&error, "syncing")));
            }
            self.synced = position;
        }
        self.position = position;
        self.last_ms = append_ms;
        for Block { slot, count, .. } in &built.blocks {
            self.ends[*slot as usize] += i64::from(*count);
        }
        let kept = positions_of(&built.bytes, place);
        let entry = Bytes::from(built.bytes);
        // Records before positions: who sees how far the group is must find what it put out.
        let mut state = journal.state();
        state.publish(&entry, &built.blocks, built.records_at, append_ms, journal.config.tail_bytes);
        let size = state.size();
        drop(state);
        journal.metrics.size.get(journal.kind).set(size as f64);
        if !kept.is_empty() {
            journal.groups.apply(kept, durable || !self.power());
        }
        if durable && journal.kind == Kind::Verdicts {
            journal.groups.settle();
        }
        journal.notify_blocks(&built.blocks);
        Ok(())
    }

    /// Leaves offsets out, so that none is given to two records: from here on slots go on at the floors. A new file
    /// says so.
    pub(crate) fn raise(&mut self, floors: &[(usize, i64)]) -> io::Result<()> {
        let before = self.ends.clone();
        for (slot, floor) in floors {
            self.ends[*slot] = self.ends[*slot].max(*floor);
        }
        if self.ends == before {
            return Ok(());
        }
        if let Err(error) = self.roll() {
            self.ends = before;
            return Err(error);
        }
        let mut state = self.journal.state();
        for (slot, (end, was)) in self.ends.iter().zip(&before).enumerate() {
            if end > was {
                let (journal, partition) = (self.journal.kind.name(), slot as u32 % self.journal.partitions);
                tracing::warn!(journal, partition, from = was, to = end, "offsets are left out");
            }
            state.slots[slot].end = *end;
        }
        Ok(())
    }

    /// Writes zeros behind the entry when the last ones are used up. A sync of what lies within the file's length and
    /// has its blocks is one write; else the file system has to write its own journal as well, which takes as long
    /// again. Large entries would pay for it by writing everything twice.
    fn make_room(&mut self, position: u64, length: u64) {
        if position < self.room || length > LARGE_ENTRY {
            return;
        }
        let ahead = (length * ENTRIES_AHEAD).clamp(ROOM.start, ROOM.end);
        let zeros = vec![0; usize::try_from(ahead).unwrap_or(0)];
        // A disk that is full has no room to make, and that is all.
        if write_all(&self.file, &zeros, position).is_ok() {
            self.room = position + ahead;
        }
    }

    fn sync_file(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        let outcome = self.file.sync_data();
        self.journal.metrics.sync.record(begun.elapsed().as_secs_f64());
        if let Err(error) = &outcome {
            self.fault("sync", error);
            self.tail = Tail::Doubtful;
        }
        outcome
    }

    fn fault(&self, step: &'static str, error: &io::Error) {
        self.journal.metrics.faults.get(self.journal.kind).increment(1);
        let (journal, segment, position) = (self.journal.kind.name(), self.number, self.position);
        tracing::warn!(journal, segment, position, step, %error, "journal was not written");
    }

    /// A file that can be appended to, within the limits.
    fn make_ready(&mut self) -> Result<(), Refusal> {
        if self.is_due() || self.tail != Tail::Sound {
            self.roll().map_err(|error| Refusal::Nothing(from_io(&error, "beginning a file")))?;
            self.retain();
        }
        let limit = self.journal.config.limit_bytes;
        if limit > 0 && self.journal.state().size() >= limit {
            self.retain();
            let size = self.journal.state().size();
            if size >= limit {
                let detail = format!("{} has {size} bytes, its limit is {limit}", self.journal.kind.name());
                return Err(Refusal::Nothing(full(detail)));
            }
        }
        Ok(())
    }

    /// True if this file should end: at its size, and at an age, since removed are whole files; and one that an older
    /// program began, which that program would go on reading.
    fn is_due(&self) -> bool {
        let age_ms = self.journal.files.now_ms() - self.made_ms;
        let full = self.position >= self.journal.config.segment_bytes;
        let older = self.version < VERSION;
        older || self.position > self.header_length && (full || age_ms > self.retention_ms() / 8)
    }

    /// What is to be done although nobody asks for anything.
    fn rest(&mut self) {
        if self.is_due()
            && let Err(error) = self.roll()
        {
            tracing::warn!(journal = self.journal.kind.name(), %error, "file was not ended");
        }
        self.retain();
    }

    /// Ends this file and begins the next. After an error all is as before, and it is tried again at the next append.
    fn roll(&mut self) -> io::Result<()> {
        if self.synced < self.position {
            if self.tail != Tail::Doubtful && self.sync_file().is_ok() {
                self.synced = self.position;
                if self.journal.kind == Kind::Verdicts {
                    self.journal.groups.settle();
                }
            } else if !self.power() {
                self.rescue()?;
            }
            // Else nothing behind `synced` was promised to anybody but positions, and those go into the next header.
        }
        let journal = Arc::clone(&self.journal);
        let made_ms = journal.files.now_ms().max(self.last_ms);
        let positions = if journal.kind == Kind::Verdicts { journal.groups.snapshot() } else { Vec::new() };
        let header = SegmentHeader {
            version: VERSION,
            kind: journal.kind,
            partitions: journal.partitions,
            folder: journal.folder,
            number: self.number + 1,
            made_ms,
            previous_length: self.synced,
            last_ms: self.last_ms,
            ends: self.ends.clone(),
            positions,
        };
        let (file, segment) = begin(&journal.files, &journal.dir, &header)?;
        if journal.kind == Kind::Verdicts {
            journal.groups.settle();
        }
        let finished = {
            let mut state = journal.state();
            if let Some(last) = state.segments.back_mut() {
                last.length = self.synced;
            }
            let finished = state.segments.back().cloned();
            state.segments.push_back(segment.clone());
            journal.metrics.size.get(journal.kind).set(state.size() as f64);
            finished
        };
        if let Some(finished) = finished
            && let Err(error) = finished.write_index(&journal.files)
        {
            tracing::warn!(journal = journal.kind.name(), %error, "index was not written");
        }
        // What was made ahead and not used.
        if self.tail == Tail::Sound
            && self.room > self.position
            && let Err(error) = self.file.set_len(self.position)
        {
            self.fault("cut", &error);
        }
        self.file = file;
        self.room = segment.length;
        (self.version, self.number) = (segment.version, segment.number);
        self.made_ms = made_ms;
        self.header_length = segment.header_length();
        (self.position, self.synced, self.tail) = (segment.length, segment.length, Tail::Sound);
        Ok(())
    }

    /// Writes once more what was acknowledged without a sync and may have been dropped by a failed one: the system still
    /// has it, or it has not, and then the checksums tell.
    fn rescue(&mut self) -> io::Result<()> {
        let length = usize::try_from(self.position - self.synced).unwrap_or(usize::MAX);
        let bytes = read_exact(&self.file, length, self.synced)?;
        let mut at = 0;
        while at < bytes.len() {
            let position = self.synced + at as u64;
            let place = Place { folder: self.journal.folder, segment: self.number, position };
            let Some(entry) = Entry::parse(&bytes[at..], place) else {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("lost what was at {position}"),
                ));
            };
            at += entry.header.length;
        }
        write_all(&self.file, &bytes, self.synced)?;
        self.sync_file()?;
        self.synced = self.position;
        Ok(())
    }

    /// All durable, and said so by a last entry: what is missing at the next start is damage then.
    fn finish(&mut self) -> io::Result<()> {
        if self.tail != Tail::Sound {
            self.roll()?;
        }
        if self.synced < self.position {
            self.sync_file()?;
            self.synced = self.position;
        }
        if self.position == self.header_length {
            return Ok(());
        }
        let (kind, partitions) = (self.journal.kind, self.journal.partitions);
        let mut last = Built::new(vec![self.nothing()], self.ends.len());
        let place = Place { folder: self.journal.folder, segment: self.number, position: self.position };
        last.seal(kind, partitions, place, self.synced, self.last_ms, &self.ends);
        write_all(&self.file, &last.bytes, self.position)?;
        self.file.set_len(self.position + last.bytes.len() as u64)?;
        self.file.sync_data()
    }

    pub(crate) fn retention_ms(&self) -> i64 {
        let config = &self.journal.config;
        let hours = match self.journal.kind {
            Kind::Views => config.views_retention_hours,
            Kind::Verdicts => config.verdicts_retention_hours,
        };
        i64::try_from(hours).unwrap_or(i64::MAX).saturating_mul(3_600_000)
    }
}

fn positions_of(entry: &[u8], place: Place) -> Vec<Kept> {
    // Most entries of views have none; those that have were made by us a moment ago.
    if super::format::u16_at(entry, 14) == 0 {
        return Vec::new();
    }
    Entry::parse(entry, place).and_then(|entry| entry.positions()).unwrap_or_default()
}

/// Makes a segment's file with its header, durably.
pub(crate) fn begin<F: FileLayer>(
    files: &F,
    dir: &std::path::Path,
    header: &SegmentHeader,
) -> io::Result<(F::File, Segment)> {
    let path = segment_path(dir, header.number);
    let bytes = header.encode();
    let file = files.open(&path, true)?;
    // There may be something from an earlier attempt.
    if file.length()? > 0 {
        file.set_len(0)?;
    }
    write_all(&file, &bytes, 0)?;
    file.sync_data()?;
    files.sync_dir(dir)?;
    let length = bytes.len() as u64;
    let first = Mark { position: length, before_ms: header.last_ms, ends: header.ends.as_slice().into() };
    let SegmentHeader { version, number, made_ms, last_ms, .. } = *header;
    Ok((file, Segment { version, number, path, made_ms, length, last_ms, marks: vec![first] }))
}
