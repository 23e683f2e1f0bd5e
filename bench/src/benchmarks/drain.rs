//! How far a drain is, read from the stores themselves.

use crate::meter::{Cost, Meter};
use crate::resp::{Pipeline, Reply, Resp};
use crate::roles::{PARTITIONS, Role, Round};
use anyhow::{Context, Result, bail, ensure};
use std::cell::OnceCell;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often the stores are asked: one small pipeline each time.
const INTERVAL: Duration = Duration::from_millis(50);

/// A drain that does not get on for this long has failed.
const STILL: Duration = Duration::from_secs(60);

/// A kind of key that each partition has one of.
#[derive(Debug)]
pub(crate) struct Keys<'a> {
    resp: Resp,
    kind: &'static str,
    tags: &'a Tags,
}

/// Each partition's part of its keys' names, in braces and in order. It is the same for all kinds of keys, so that it is
/// looked for but once, while the stores are nearly empty: that is a walk over all keys.
#[derive(Debug, Default)]
pub(crate) struct Tags(OnceCell<Vec<String>>);

impl Tags {
    fn find(&self, resp: &mut Resp, kind: &str) -> Result<Option<&[String]>> {
        if let Some(tags) = self.0.get() {
            return Ok(Some(tags));
        }
        let found = resp.call(&[b"KEYS", format!("{kind}:{{*}}").as_bytes()])?.parts();
        let mut tags: Vec<(u32, String)> = Vec::new();
        for name in found.into_iter().filter_map(Reply::bytes) {
            let name = String::from_utf8(name)?;
            let partition = partition(&name).with_context(|| format!("{name} names no partition"))?;
            tags.push((partition, name[kind.len() + 1..].to_owned()));
        }
        tags.sort();
        if tags.len() < PARTITIONS as usize {
            return Ok(None);
        }
        Ok(Some(self.0.get_or_init(|| tags.into_iter().map(|(_, tag)| tag).collect())))
    }

    /// The tag of a partition; none if they were not found yet.
    pub(crate) fn get(&self, partition: i32) -> Option<&str> {
        Some(self.0.get()?.get(usize::try_from(partition).ok()?)?)
    }
}

impl<'a> Keys<'a> {
    /// `kind` is what the keys' names begin with; they need not be there yet.
    pub(crate) fn new(port: u16, kind: &'static str, tags: &'a Tags) -> Result<Self> {
        Ok(Self { resp: Resp::connect(port)?, kind, tags })
    }

    /// Asks for each partition's key by this command. None while it is not known what they are called.
    pub(crate) fn ask(&mut self, command: &[u8], rest: &[&[u8]]) -> Result<Option<Vec<Reply>>> {
        let Some(tags) = self.tags.find(&mut self.resp, self.kind)? else { return Ok(None) };
        let mut pipeline = Pipeline::default();
        for tag in tags {
            pipeline.push(&[&[command, format!("{}:{tag}", self.kind).as_bytes()], rest].concat());
        }
        self.resp.run(&mut pipeline).map(Some)
    }

    /// The fields of all partitions' hashes together.
    pub(crate) fn fields(&mut self) -> Result<i64> {
        let replies = self.ask(b"HLEN", &[])?.unwrap_or_default();
        Ok(replies.iter().map(|r| if let Reply::Int(n) = r { *n } else { 0 }).sum())
    }

    /// The field `offset` of each partition's key; 0 where there is none yet.
    fn offsets(&mut self) -> Result<Vec<i64>> {
        let Some(replies) = self.ask(b"HGET", &[b"offset"])? else {
            return Ok(vec![0; PARTITIONS as usize]);
        };
        let offset = |reply: Reply| match reply.bytes() {
            Some(bytes) => Ok(std::str::from_utf8(&bytes)?.parse()?),
            None => Ok(0),
        };
        replies.into_iter().map(offset).collect()
    }

    /// Waits until each partition's offset has reached its goal. Gives the reading of the meter at that moment.
    pub(crate) fn wait(&mut self, goals: &[i64], meter: &Meter, roles: &mut [Role]) -> Result<Reading> {
        let mut reading = Reading { costs: Vec::new(), at: Duration::ZERO, first: None };
        let (mut last, mut moved) = (Vec::new(), Instant::now());
        loop {
            for role in &mut *roles {
                role.check_alive()?;
            }
            let now = self.offsets()?;
            if now != last {
                if !last.is_empty() && reading.first.is_none() {
                    reading.first = Some(meter.elapsed());
                }
                last.clone_from(&now);
                moved = Instant::now();
            }
            if now.iter().zip(goals).all(|(at, goal)| at >= goal) {
                (reading.at, reading.costs) = (meter.elapsed(), meter.read()?);
                return Ok(reading);
            }
            if moved.elapsed() > STILL {
                let words: Vec<String> = roles.iter().map(Role::last_words).collect();
                bail!("{} stands still at {now:?}, before {goals:?}\n{}", self.kind, words.join("\n"));
            }
            sleep(INTERVAL);
        }
    }
}

/// `kind:{GENERATION.PARTITION.SUFFIX}`
fn partition(name: &str) -> Option<u32> {
    let (_, tag) = name.split_once('{')?;
    tag.split('.').nth(1)?.parse().ok()
}

/// A meter at the end of a drain.
#[derive(Debug)]
pub(crate) struct Reading {
    /// What each process took.
    pub(crate) costs: Vec<Cost>,
    /// Since the meter was opened.
    pub(crate) at: Duration,
    /// When the first progress was seen, since the meter was opened: by then processes have started and groups formed.
    pub(crate) first: Option<Duration>,
}

impl Reading {
    /// From the first progress to the end.
    pub(crate) fn draining(&self) -> Duration {
        self.at.saturating_sub(self.first.unwrap_or_default())
    }
}

/// Waits until the filter has judged, committed and claimed everything in `views`.
pub(crate) fn until_filtered(
    keys: &mut Keys<'_>,
    round: &Round,
    meter: &Meter,
    roles: &mut [Role],
) -> Result<Reading> {
    let ends = round.views.ends()?;
    let reading = keys.wait(&ends, meter, roles)?;
    let committed = round.views.committed(&round.filter_group)?;
    let ends: Vec<_> = ends.into_iter().map(Some).collect();
    ensure!(committed == ends, "claims stand at the end of the log, and the group at {committed:?}");
    Ok(reading)
}

/// Waits until the counter has applied everything in `views.counted`.
pub(crate) fn until_counted(
    keys: &mut Keys<'_>,
    round: &Round,
    meter: &Meter,
    roles: &mut [Role],
) -> Result<Reading> {
    keys.wait(&round.counted.ends_of_records()?, meter, roles)
}

/// Waits until nothing is dirty: everything is archived.
pub(crate) fn until_archived(port: u16, tags: &Tags, flusher: &mut Role) -> Result<()> {
    let mut hashes = [Keys::new(port, "dirtyS", tags)?, Keys::new(port, "dirtyN", tags)?];
    let start = Instant::now();
    loop {
        flusher.check_alive()?;
        let dirty = hashes.iter_mut().map(Keys::fields).sum::<Result<i64>>()?;
        if dirty == 0 {
            return Ok(());
        }
        if start.elapsed() > Duration::from_secs(600) {
            bail!("{dirty} sketches and numbers are not archived after {} s", start.elapsed().as_secs());
        }
        // A round is every ten seconds; asking more often would only cost Redis.
        sleep(INTERVAL * 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_read_from_names() {
        assert_eq!(partition("applied:{r12.7.33}"), Some(7));
        assert_eq!(partition("applied"), None);
    }
}
