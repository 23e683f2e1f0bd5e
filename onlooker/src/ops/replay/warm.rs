//! Views from before the range that is replayed: they are judged, so that those behind them meet what they met the first
//! time, and are not counted.

use onlooker_ports::{CommitError, OutgoingBatch, Position, Topic, Transactor};
use onlooker_proto::{CARRIED_OVER, decode_counted, encode_counted};

/// Hands on what a filter puts out, with the verdicts on earlier views as ones that claim and do not count.
pub(super) struct Warm<T> {
    inner: T,
    /// Per partition of `views`: the range begins here.
    from: Vec<i64>,
}

impl<T> Warm<T> {
    pub(super) fn new(inner: T, from: Vec<i64>) -> Self {
        Self { inner, from }
    }

    fn is_early(&self, partition: i32, offset: i64) -> bool {
        let from = usize::try_from(partition).ok().and_then(|at| self.from.get(at));
        offset >= 0 && from.is_some_and(|from| offset < *from)
    }
}

impl<T: Transactor> Transactor for Warm<T> {
    type Membership = T::Membership;

    async fn commit(
        &mut self,
        outputs: &OutgoingBatch,
        inputs: &[Position],
        membership: &T::Membership,
    ) -> Result<(), CommitError> {
        let early = inputs.iter().any(|position| self.is_early(position.partition, 0))
            && self.from.iter().any(|from| *from > 0);
        if !early {
            return self.inner.commit(outputs, inputs, membership).await;
        }
        let mut marked = OutgoingBatch::with_capacity(outputs.len(), outputs.bytes());
        for record in outputs.iter() {
            let counted = (record.topic == Topic::Counted).then(|| decode_counted(Some(record.payload)).ok());
            match counted.flatten() {
                Some(mut view) if self.is_early(view.source_partition, view.source_offset) => {
                    view.source_offset = CARRIED_OVER;
                    marked.push_with(record.topic, record.key, |out| encode_counted(&view, out));
                }
                _ => marked.push(record.topic, record.key, record.payload),
            }
        }
        self.inner.commit(&marked, inputs, membership).await
    }
}
