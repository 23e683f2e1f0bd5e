//! A batch as the arguments of one script, and the script's answer.

use onlooker_ports::{Apply, ApplyOutcome, Base, PortError, SketchAdd};
use redis::Value;

use super::{RedisCounters, number};
use crate::keys::Names;
use crate::pack::Packer;
use crate::script::Script;

static APPLY: Script = Script::new(include_str!("../lua/apply.lua"));

/// The sketches of a batch as the script takes them. The script answers with positions over the three lists, one
/// behind the other; `order` leads from a position back to the batch.
struct Packed {
    singles: Vec<u8>,
    multis: Vec<u8>,
    based: Vec<u8>,
    order: Vec<usize>,
}

fn pack_sketches(sketches: &[SketchAdd], stem: &[u8], to: i64) -> Packed {
    let room = |len: usize| len * (stem.len() + 64);
    // Lists of their own, because a single member is by far the most frequent case and the cheapest to read.
    let (mut singles, mut multis, mut based) = (Vec::new(), Vec::new(), Vec::new());
    for (index, add) in sketches.iter().enumerate() {
        match (&add.base, add.members.len()) {
            (None, 1) => singles.push(index),
            (None, _) => multis.push(index),
            (Some(_), _) => based.push(index),
        }
    }
    let mut out = Packer::with_capacity(room(singles.len()));
    for add in singles.iter().map(|i| &sketches[*i]) {
        out.joined(stem, add.key.as_bytes());
        add.members.iter().for_each(|member| out.bytes(member));
    }
    let packed_singles = out.finish();

    let members: usize = multis.iter().map(|i| sketches[*i].members.len()).sum();
    let mut out = Packer::with_capacity(room(multis.len()) + members * 17);
    for add in multis.iter().map(|i| &sketches[*i]) {
        out.number(1 + add.members.len());
        out.joined(stem, add.key.as_bytes());
        add.members.iter().for_each(|member| out.bytes(member));
    }
    let packed_multis = out.finish();

    let mut out = Packer::with_capacity(room(based.len()));
    for add in based.iter().map(|i| &sketches[*i]) {
        let empty = Base::default();
        let base = add.base.as_ref().unwrap_or(&empty);
        out.number(2 + add.members.len());
        // The base holds the records below its own offset, which may lie ahead of this batch: a lower mark would
        // claim less than the sketch holds.
        out.bytes(to.max(base.ts).to_string().as_bytes());
        out.joined(stem, add.key.as_bytes());
        out.bytes(base.blob.as_deref().unwrap_or_default());
        add.members.iter().for_each(|member| out.bytes(member));
    }
    let order = [singles, multis, based].concat();
    Packed { singles: packed_singles, multis: packed_multis, based: out.finish(), order }
}

impl RedisCounters {
    pub(super) async fn apply_batch(&self, partition: i32, batch: &Apply) -> Result<ApplyOutcome, PortError> {
        let names: Names<'_> = self.partition(partition)?;
        let sketches = pack_sketches(&batch.sketches, &names.sketch_stem(), batch.to);
        let mut numbers = Packer::with_capacity(batch.numbers.len() * 64);
        for (key, value) in &batch.numbers {
            numbers.bytes(key.as_bytes());
            numbers.bytes(&number::encode(*value));
        }
        let mut call = APPLY.call(&[&names.applied(), &names.dirty_sketches(), &names.dirty_numbers()]);
        call.arg(batch.from).arg(batch.to).arg(batch.as_of_ms);
        call.arg(sketches.singles).arg(sketches.multis).arg(sketches.based).arg(numbers.finish());

        let reader = self.reader("apply script");
        let answer = reader.array(self.client.script(names.slot(), &APPLY, &call).await?)?;
        let indices = |positions: &[Value]| -> Result<Vec<usize>, PortError> {
            let index = |position: &Value| {
                let at = usize::try_from(reader.number(position)?).ok().and_then(|at| at.checked_sub(1));
                at.and_then(|at| sketches.order.get(at)).copied().ok_or_else(|| reader.wrong(position))
            };
            let mut indices = positions.iter().map(index).collect::<Result<Vec<_>, _>>()?;
            indices.sort_unstable();
            Ok(indices)
        };
        match answer.as_slice() {
            [Value::Int(0)] => Ok(ApplyOutcome::Done),
            [Value::Int(1), at] => reader.maybe_number(at).map(ApplyOutcome::Gap),
            [Value::Int(2), positions @ ..] => indices(positions).map(ApplyOutcome::Missing),
            [Value::Int(3), positions @ ..] => indices(positions).map(ApplyOutcome::Corrupt),
            _ => Err(reader.wrong(&Value::Array(answer))),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use bytes::Bytes;
    use onlooker_event::CountKey;

    fn add(item: &str, members: usize, base: Option<Base>) -> SketchAdd {
        let key = CountKey::parse(Bytes::from(format!("*:s:{item}"))).unwrap();
        SketchAdd { key, members: vec![[7; 16]; members], base }
    }

    #[test]
    fn positions_lead_back_to_the_batch() {
        let ahead = Base { blob: Some(Bytes::from_static(b"HYLL")), ts: 90 };
        let sketches = [
            add("a", 2, None),
            add("b", 1, Some(ahead)),
            add("c", 1, None),
            add("d", 0, None),
            add("e", 0, Some(Base::default())),
        ];
        let packed = pack_sketches(&sketches, b"k:", 50);
        assert_eq!(packed.order, [2, 0, 3, 1, 4]);
        assert_eq!(packed.singles, [&[0xdd, 0, 0, 0, 2, 0xa7][..], b"k:*:s:c", &[0xb0], &[7; 16]].concat());
        let text = String::from_utf8_lossy(&packed.based).into_owned();
        assert!(
            text.contains("90") && text.contains("50"),
            "each mark is the higher of batch and base: {text:?}"
        );
    }
}
