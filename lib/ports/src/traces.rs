//! Which of a batch's records belong to a trace. Most batches have none that does, and then this costs nothing.

use onlooker_event::TraceParent;

/// By place in the batch; what is beyond its end belongs to none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traces(Vec<Option<TraceParent>>);

impl Traces {
    /// The trace of the last of `records` records.
    pub(crate) fn set_last(&mut self, records: usize, trace: Option<&TraceParent>) {
        let Some(last) = records.checked_sub(1) else { return };
        if trace.is_some() || self.0.len() > last {
            self.0.resize(last, None);
            self.0.push(trace.copied());
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<&TraceParent> {
        self.0.get(index).and_then(Option::as_ref)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Puts those of another batch behind `records` records.
    pub(crate) fn extend_from(&mut self, records: usize, other: &Self) {
        if !other.0.is_empty() {
            self.0.resize(records, None);
            self.0.extend_from_slice(&other.0);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::{BatchBuilder, OutgoingBatch, Topic};
    use onlooker_event::TraceParent;

    fn trace(last: u8) -> TraceParent {
        let mut bytes = [last; TraceParent::BYTES];
        bytes[24] = 1;
        TraceParent::from_bytes(&bytes).unwrap()
    }

    fn outgoing(traces: &[Option<u8>]) -> OutgoingBatch {
        let mut batch = OutgoingBatch::default();
        for told in traces {
            batch.push(Topic::Views, b"k", b"v");
            if let Some(told) = told {
                batch.trace_last(Some(&trace(*told)));
            }
        }
        batch
    }

    #[test]
    fn each_record_has_its_own() {
        let (one, two) = (trace(1), trace(2));
        let mut batch = outgoing(&[None, Some(1), None]);
        batch.extend_from(&outgoing(&[None]));
        batch.extend_from(&outgoing(&[None, Some(2)]));
        let told: Vec<_> = batch.iter().map(|record| record.trace).collect();
        assert_eq!(told, [None, Some(&one), None, None, None, Some(&two)]);
        batch.clear();
        batch.push(Topic::Views, b"k", b"v");
        assert_eq!(batch.iter().next().unwrap().trace, None);
    }

    #[test]
    fn the_last_word_counts() {
        let mut batch = BatchBuilder::new(0);
        batch.trace_last(Some(&trace(1)));
        batch.push(0, 0, None, None);
        batch.trace_last(Some(&trace(1)));
        batch.trace_last(Some(&trace(2)));
        batch.push(1, 0, None, None);
        batch.push(2, 0, None, None);
        batch.trace_last(Some(&trace(3)));
        batch.trace_last(None);
        let batch = batch.build();
        let told: Vec<_> = batch.iter().map(|record| record.trace.copied()).collect();
        assert_eq!(told, [Some(trace(2)), None, None]);
        assert_eq!(batch.get(0).unwrap().trace, Some(&trace(2)));
    }
}
