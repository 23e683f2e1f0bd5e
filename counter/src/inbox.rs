//! What a partition's reader has delivered and the heart has not taken yet.

use crate::group::{Grouped, Grouper};
use onlooker_ports::{Batch, OutgoingBatch};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Bytes of unreadable records in one batch, about at most.
const DEAD_BYTES: usize = 1 << 20;

/// One delivery.
#[derive(Debug)]
pub(crate) enum Delivery {
    Records(Batch),
    CaughtUp(i64),
    OutOfRange { wanted: i64, earliest: i64, end: i64 },
}

/// Records are grouped as they come; grouping needs nothing but them, so it goes on while a step is under way.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// None while nothing was asked for.
    deliveries: Option<mpsc::Receiver<Delivery>>,
    grouper: Grouper,
    most_records: usize,
    /// When the first of the grouped records came.
    since: Option<Instant>,
    /// A batch of which only the records before this index are grouped.
    rest: Option<(Batch, usize)>,
    /// The log has no record up to here that was not delivered.
    caught_up: i64,
    /// The last delivery, if it was this.
    pub(crate) out_of_range: Option<(i64, i64, i64)>,
}

impl Inbox {
    pub(crate) fn new(partition: i32, topic: &str, most_records: usize) -> Self {
        Self {
            deliveries: None,
            grouper: Grouper::new(partition, topic),
            most_records,
            since: None,
            rest: None,
            caught_up: 0,
            out_of_range: None,
        }
    }

    /// See [`Grouper::spread_over`].
    pub(crate) fn spread_over(mut self, partitions: u32) -> Self {
        self.grouper = self.grouper.spread_over(partitions);
        self
    }

    /// Drops everything: what follows was delivered for a position that no longer counts.
    pub(crate) fn close(&mut self) {
        self.deliveries = None;
        let _void = self.grouper.take();
        (self.since, self.rest, self.caught_up, self.out_of_range) = (None, None, 0, None);
    }

    /// From here on, these deliveries.
    pub(crate) fn open(&mut self, deliveries: mpsc::Receiver<Delivery>) {
        self.close();
        self.deliveries = Some(deliveries);
    }

    /// False once deliveries have ended: for what follows, they have to be asked for anew.
    pub(crate) fn is_open(&self) -> bool {
        self.deliveries.is_some()
    }

    /// True while another delivery may be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.rest.is_none()
            && self.out_of_range.is_none()
            && self.deliveries.is_some()
            && self.grouper.records() < self.most_records
            && self.grouper.dead_bytes() < DEAD_BYTES
    }

    /// Waits for a delivery.
    pub(crate) async fn receive(&mut self) {
        let Some(deliveries) = &mut self.deliveries else { return std::future::pending().await };
        match deliveries.recv().await {
            Some(delivery) => self.accept(delivery),
            None => self.deliveries = None,
        }
    }

    /// Takes what is there without waiting.
    pub(crate) fn fill(&mut self) {
        self.draw();
        while self.has_room() {
            match self.deliveries.as_mut().map(mpsc::Receiver::try_recv) {
                Some(Ok(delivery)) => self.accept(delivery),
                Some(Err(mpsc::error::TryRecvError::Disconnected)) => self.deliveries = None,
                _ => return,
            }
        }
    }

    fn accept(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Records(batch) => {
                self.rest = Some((batch, 0));
                self.draw();
            }
            Delivery::CaughtUp(next_offset) => self.caught_up = self.caught_up.max(next_offset),
            Delivery::OutOfRange { wanted, earliest, end } => {
                self.out_of_range = Some((wanted, earliest, end));
            }
        }
    }

    fn draw(&mut self) {
        let Some((batch, mut done)) = self.rest.take() else { return };
        for record in batch.iter().skip(done) {
            if self.grouper.records() >= self.most_records || self.grouper.dead_bytes() >= DEAD_BYTES {
                break;
            }
            self.grouper.push(record);
            done += 1;
        }
        if self.grouper.records() > 0 {
            self.since.get_or_insert_with(Instant::now);
        }
        self.rest = (done < batch.len()).then_some((batch, done));
    }

    /// From when on the grouped records should be taken: at once if no more will join them. None without records.
    pub(crate) fn ripe_at(&self, linger: Duration) -> Option<Instant> {
        let since = self.since?;
        Some(if self.has_room() { since + linger } else { since })
    }

    /// Records, if there are any, and where the log stands after them. Behind the last one there may be offsets that
    /// are no records (transaction markers); if nothing follows, they are taken along.
    pub(crate) fn take(&mut self) -> Option<(Grouped, i64)> {
        let grouped = self.grouper.take()?;
        self.since = None;
        let to = if self.rest.is_none() { grouped.to.max(self.caught_up) } else { grouped.to };
        Some((grouped, to))
    }

    /// Where the log ends, if everything up to there was taken.
    pub(crate) fn caught_up(&self) -> Option<i64> {
        (self.grouper.records() == 0 && self.rest.is_none()).then_some(self.caught_up)
    }
}

/// How many of the recent records were readable.
#[derive(Debug, Default)]
pub(crate) struct Quality {
    records: u64,
    dead: u64,
}

/// Records after which half of what was seen is forgotten.
const MEMORY: u64 = 10_000;
/// Fewer unreadable records than this prove nothing.
const FEW: u64 = 1_000;

impl Quality {
    /// True if these records may be set aside: not when most of what comes is unreadable, for then it is this program
    /// that cannot read, and the log should wait for one that can.
    pub(crate) fn allows(&mut self, records: usize, dead: &OutgoingBatch, limit_percent: u8) -> bool {
        let (records, dead) = (self.records + records as u64, self.dead + dead.len() as u64);
        if dead >= FEW && dead * 100 > records * u64::from(limit_percent) {
            return false;
        }
        (self.records, self.dead) = (records, dead);
        if self.records > MEMORY {
            (self.records, self.dead) = (self.records / 2, self.dead / 2);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::counted;
    use onlooker_ports::{BatchBuilder, Topic};

    fn batch(offsets: std::ops::Range<i64>) -> Delivery {
        let mut batch = BatchBuilder::new(0);
        for offset in offsets {
            let (key, payload) = counted("a", 1, 0);
            batch.push(offset, offset, Some(&key), Some(&payload));
        }
        Delivery::Records(batch.build())
    }

    #[test]
    fn deliveries_are_cut_and_joined_to_batches() {
        let (to_inbox, deliveries) = mpsc::channel(9);
        let mut inbox = Inbox::new(0, "t", 4);
        inbox.open(deliveries);
        for delivery in [batch(0..3), batch(3..9), Delivery::CaughtUp(11), batch(11..12)] {
            to_inbox.try_send(delivery).unwrap();
        }
        let mut taken = Vec::new();
        loop {
            inbox.fill();
            let Some((grouped, to)) = inbox.take() else { break };
            taken.push((grouped.first, grouped.records, to));
        }
        assert_eq!(taken, [(0, 4, 4), (4, 4, 8), (8, 2, 12)]);
        assert_eq!(inbox.caught_up(), Some(11));
        inbox.close();
        assert_eq!(inbox.caught_up(), Some(0));
        assert!(!inbox.has_room());
    }

    #[tokio::test(start_paused = true)]
    async fn records_wait_for_company_a_little() {
        let linger = Duration::from_millis(20);
        let (to_inbox, deliveries) = mpsc::channel(9);
        let mut inbox = Inbox::new(0, "t", 4);
        inbox.open(deliveries);
        assert_eq!(inbox.ripe_at(linger), None);
        let now = Instant::now();
        to_inbox.try_send(batch(0..1)).unwrap();
        inbox.fill();
        assert_eq!(inbox.ripe_at(linger), Some(now + linger));
        tokio::time::advance(linger / 2).await;
        to_inbox.try_send(batch(1..2)).unwrap();
        inbox.fill();
        assert_eq!(inbox.ripe_at(linger), Some(now + linger), "the first one counts");
        to_inbox.try_send(batch(2..9)).unwrap();
        inbox.fill();
        assert_eq!(inbox.ripe_at(linger), Some(now), "full");
        assert_eq!(inbox.take().map(|(g, _)| g.records), Some(4));
        inbox.fill();
        assert_eq!(inbox.take().map(|(g, _)| g.records), Some(4));
        drop(to_inbox);
        inbox.fill();
        assert_eq!(inbox.ripe_at(linger), Some(Instant::now()), "no more will come");
    }

    #[test]
    fn markers_behind_the_last_record_are_taken_along() {
        let (to_inbox, deliveries) = mpsc::channel(9);
        let mut inbox = Inbox::new(0, "t", 2);
        inbox.open(deliveries);
        to_inbox.try_send(batch(5..8)).unwrap();
        to_inbox.try_send(Delivery::CaughtUp(10)).unwrap();
        inbox.fill();
        assert_eq!(inbox.take().map(|(g, to)| (g.records, to)), Some((2, 7)), "a record is left");
        inbox.fill();
        assert_eq!(inbox.take().map(|(g, to)| (g.records, to)), Some((1, 10)));
    }

    #[test]
    fn many_unreadable_records_are_not_set_aside() {
        let dead = |n: usize| {
            let mut dead = OutgoingBatch::default();
            (0..n).for_each(|_| dead.push(Topic::Dead, b"", b""));
            dead
        };
        let mut quality = Quality::default();
        assert!(quality.allows(900, &dead(900), 50), "too few to tell");
        assert!(!quality.allows(900, &dead(900), 50));
        assert!(quality.allows(2_000, &dead(200), 50));
        assert!(Quality::default().allows(5_000, &dead(5_000), 100));
    }
}
