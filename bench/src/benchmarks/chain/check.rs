//! Whether the drain counted right: read from Redis, compared with the model.

use crate::benchmarks::drain::{Keys, Tags};
use crate::model::{Model, count_key};
use crate::resp::{Reply, Resp};
use anyhow::{Context, Result, ensure};
use onlooker_event::partition_of;
use onlooker_sketch::Sketch;
use std::collections::HashMap;

/// Sketches to compare: the most viewed, and as many across all others.
const SAMPLE: usize = 200;

/// Every item's number of views, exactly.
pub(super) fn numbers(port: u16, tags: &Tags, model: &Model) -> Result<()> {
    let mut found: HashMap<Vec<u8>, u64> = HashMap::new();
    // What changed since it was archived stands in the first and is the newer one. In this order, since the flusher
    // moves numbers from the first to the second meanwhile.
    for kind in ["dirtyN", "totals"] {
        let replies = Keys::new(port, kind, tags)?.ask(b"HGETALL", &[])?;
        for reply in replies.context("the keys' names are not known")? {
            let mut parts = reply.parts().into_iter().filter_map(Reply::bytes);
            while let (Some(field), Some(value)) = (parts.next(), parts.next()) {
                // Bytes 8 to 15 are the number, little-endian.
                let n = value.get(8..16).and_then(|n| n.try_into().ok()).context("a number too short")?;
                found.entry(field).or_insert(u64::from_le_bytes(n));
            }
        }
    }
    let wrong: Vec<String> = model
        .items()
        .filter_map(|(item, views)| {
            let key = count_key(item);
            let got = found.get(key.as_bytes()).copied();
            (got != Some(views)).then(|| format!("{key}: {got:?}, not {views}"))
        })
        .collect();
    ensure!(
        wrong.is_empty(),
        "{} numbers are wrong: {}",
        wrong.len(),
        wrong[..wrong.len().min(3)].join("; ")
    );
    let sum: u64 = found.iter().filter(|(key, _)| key.starts_with(b"*:")).map(|(_, n)| n).sum();
    ensure!(sum == model.counted(), "{sum} views counted, {} expected", model.counted());
    eprintln!("{} of {} views counted, every number exact", sum, model.views());
    Ok(())
}

/// A sample of sketches, register for register.
pub(super) fn sketches(port: u16, tags: &Tags, model: &Model) -> Result<()> {
    let mut items: Vec<(u32, u64)> = model.items().collect();
    items.sort_by_key(|(item, views)| (std::cmp::Reverse(*views), *item));
    let step = (items.len() / SAMPLE).max(1);
    let mut sample: Vec<u32> =
        items.iter().take(SAMPLE).chain(items.iter().step_by(step)).map(|(i, _)| *i).collect();
    sample.sort_unstable();
    sample.dedup();
    let mut resp = Resp::connect(port)?;
    for (item, expected) in model.sketches(&sample) {
        let key = count_key(item);
        let partition = partition_of(key.trim_start_matches("*:").as_bytes(), crate::roles::PARTITIONS);
        let tag = tags.get(partition).context("the keys' names are not known")?;
        let bytes = resp.call(&[b"GET", format!("sketch:{tag}:{key}").as_bytes()])?.bytes();
        let found = Sketch::from_redis(&bytes.with_context(|| format!("{key} has no sketch"))?)?;
        ensure!(found.register_eq(&expected), "{key}: another sketch than the log's");
    }
    eprintln!("{} sketches equal to the log's, register for register", sample.len());
    Ok(())
}
