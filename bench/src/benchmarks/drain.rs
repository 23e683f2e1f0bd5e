//! How far a drain is, read from the stores themselves.

use crate::meter::{Cost, Meter};
use crate::resp::{Pipeline, Reply, Resp};
use crate::roles::{PARTITIONS, Role, Round};
use anyhow::{Context, Result, bail, ensure};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often the stores are asked: one small pipeline each time.
const INTERVAL: Duration = Duration::from_millis(50);

/// A drain that does not get on for this long has failed.
const STILL: Duration = Duration::from_secs(60);

/// A kind of key that each partition has one of.
#[derive(Debug)]
pub(crate) struct Keys {
    resp: Resp,
    kind: &'static str,
    /// In the order of the partitions.
    names: Vec<Vec<u8>>,
}

impl Keys {
    /// `kind` is what the keys' names begin with; they need not be there yet.
    pub(crate) fn new(port: u16, kind: &'static str) -> Result<Self> {
        Ok(Self { resp: Resp::connect(port)?, kind, names: Vec::new() })
    }

    /// Asks for each key that is there by this command: an empty hash is no key.
    pub(crate) fn ask(&mut self, command: &[u8], rest: &[&[u8]]) -> Result<Vec<Reply>> {
        self.find()?;
        let mut pipeline = Pipeline::default();
        for name in &self.names {
            pipeline.push(&[&[command, name], rest].concat());
        }
        self.resp.run(&mut pipeline)
    }

    /// The fields of all partitions' hashes together.
    pub(crate) fn fields(&mut self) -> Result<i64> {
        let replies = self.ask(b"HLEN", &[])?;
        Ok(replies.iter().map(|r| if let Reply::Int(n) = r { *n } else { 0 }).sum())
    }

    /// The keys' names, in the order of the partitions; empty while not every partition has its key.
    pub(crate) fn names(mut self) -> Result<Vec<Vec<u8>>> {
        let all = self.find()?;
        Ok(if all { self.names } else { Vec::new() })
    }

    fn find(&mut self) -> Result<bool> {
        if self.names.len() == PARTITIONS as usize {
            return Ok(true);
        }
        let found = self.resp.call(&[b"KEYS", format!("{}:{{*}}", self.kind).as_bytes()])?.parts();
        let mut names: Vec<(u32, Vec<u8>)> = Vec::new();
        for name in found.into_iter().filter_map(Reply::bytes) {
            let partition = partition(&name).context("a key without partition")?;
            names.push((partition, name));
        }
        names.sort();
        self.names = names.into_iter().map(|(_, name)| name).collect();
        Ok(self.names.len() == PARTITIONS as usize)
    }

    /// The field `offset` of each partition's key; 0 where there is none yet.
    fn offsets(&mut self) -> Result<Vec<i64>> {
        if !self.find()? {
            return Ok(vec![0; PARTITIONS as usize]);
        }
        let replies = self.ask(b"HGET", &[b"offset"])?;
        replies
            .into_iter()
            .map(|reply| {
                let bytes = reply.bytes().context("no offset")?;
                Ok(std::str::from_utf8(&bytes)?.parse()?)
            })
            .collect()
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

/// `kind:{GENERATION.PARTITION.SUFFIX}…`
fn partition(name: &[u8]) -> Option<u32> {
    let (_, tag) = std::str::from_utf8(name).ok()?.split_once('{')?;
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
    keys: &mut Keys,
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
    keys: &mut Keys,
    round: &Round,
    meter: &Meter,
    roles: &mut [Role],
) -> Result<Reading> {
    keys.wait(&round.counted.ends_of_records()?, meter, roles)
}

/// Waits until nothing is dirty: everything is archived.
pub(crate) fn until_archived(port: u16, flusher: &mut Role) -> Result<()> {
    let mut hashes = [Keys::new(port, "dirtyS")?, Keys::new(port, "dirtyN")?];
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
        assert_eq!(partition(b"applied:{r12.7.33}"), Some(7));
        assert_eq!(partition(b"applied"), None);
    }
}
