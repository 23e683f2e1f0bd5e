//! A batch as the arguments of one script, and the script's answer.

use onlooker_ports::{Apply, ApplyOutcome, Base, PortError, SketchAdd};
use redis::Value;

use super::{RedisCounters, number};
use crate::keys::Names;
use crate::pack::Packer;
use crate::script::Script;

static APPLY: Script = Script::new(include_str!("../lua/apply.lua"));

/// The sketches of a batch as the script takes them. The script answers with positions over the names and the ones with a
/// base, one behind the other; `order` leads from a position back to the batch.
struct Packed {
    names: Vec<u8>,
    members: Vec<u8>,
    counts: Vec<u8>,
    based: Vec<u8>,
    order: Vec<usize>,
}

fn pack_sketches(sketches: &[SketchAdd], stem: &[u8], to: i64) -> Packed {
    let (mut singles, mut others, mut based) = (Vec::new(), Vec::new(), Vec::new());
    for (index, add) in sketches.iter().enumerate() {
        // A single member is by far the most frequent case, and needs no count.
        match (&add.base, add.members.len()) {
            (None, 1) => singles.push(index),
            (None, _) => others.push(index),
            (Some(_), _) => based.push(index),
        }
    }
    let room = stem.len() + 48;
    let plain = singles.len() + others.len();
    let (mut names, mut members) = (Packer::with_capacity(plain * room), Packer::with_capacity(plain * 24));
    for add in singles.iter().chain(&others).map(|index| &sketches[*index]) {
        names.joined(stem, add.key.as_bytes());
        add.members.iter().for_each(|member| members.bytes(member));
    }
    let mut counts = Packer::with_capacity(others.len() * 5);
    others.iter().for_each(|index| counts.number(sketches[*index].members.len()));

    let mut built = Packer::with_capacity(based.len() * (room + 64));
    for add in based.iter().map(|index| &sketches[*index]) {
        let empty = Base::default();
        let base = add.base.as_ref().unwrap_or(&empty);
        built.number(2 + add.members.len());
        // The base holds the records below its own offset, which may lie ahead of this batch: a lower mark would
        // claim less than the sketch holds.
        built.bytes(to.max(base.ts).to_string().as_bytes());
        built.joined(stem, add.key.as_bytes());
        built.bytes(base.blob.as_deref().unwrap_or_default());
        add.members.iter().for_each(|member| built.bytes(member));
    }
    let order = [singles, others, based].concat();
    Packed {
        names: names.finish(),
        members: members.finish(),
        counts: counts.finish(),
        based: built.finish(),
        order,
    }
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
        call.arg(sketches.names).arg(sketches.members).arg(sketches.counts).arg(sketches.based);
        call.arg(numbers.finish());

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
        SketchAdd { key, members: vec![[7; 16]; members].into(), base }
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
        let name = |name: &str| [&[0xa7][..], b"k:*:s:", name.as_bytes()].concat();
        let expected = [&[0xdd, 0, 0, 0, 3][..], &name("c"), &name("a"), &name("d")].concat();
        assert_eq!(packed.names, expected);
        assert_eq!(packed.members.len(), 5 + 3 * 17);
        assert_eq!(packed.counts, [0xdd, 0, 0, 0, 2, 0xce, 0, 0, 0, 2, 0xce, 0, 0, 0, 0]);
        let text = String::from_utf8_lossy(&packed.based).into_owned();
        assert!(
            text.contains("90") && text.contains("50"),
            "each mark is the higher of batch and base: {text:?}"
        );
    }
}
