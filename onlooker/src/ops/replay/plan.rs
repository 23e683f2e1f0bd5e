//! What is read again, and where it goes: a shadow, which is a folder of its own.

use super::super::Sight;
use super::super::look::{now_ms, time};
use super::super::raw::Source;
use super::diff::ShadowRows;
use crate::carry::Mark;
use crate::config::Config;
use anyhow::{Context, Result, bail};
use onlooker_ports::{LogObserver, Topic};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// Views, which are judged again.
    Replay,
    /// Verdicts, which are counted again.
    Rebuild,
}

/// A shadow's own description, kept in its folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shadow {
    pub(super) kind: Kind,
    /// The generation of the log that it is read from.
    pub(super) generation: String,
    /// Per partition of the topic that is read: from here on records are judged.
    pub(super) begin: Vec<i64>,
    /// From here on they count.
    pub(super) from: Vec<i64>,
    /// Up to here.
    pub(super) until: Vec<i64>,
    /// The append time of `begin`: milliseconds since 1970.
    pub(super) begin_ms: i64,
    /// Of these alone, `site:item`; none: of all.
    pub(super) items: Option<Vec<String>>,
    /// Per partition: up to here all of that is counted and archived. Empty before the first reading has come to its end.
    #[serde(default)]
    pub(super) read: Vec<i64>,
    /// The other rules that views are judged by, as TOML; none: those of the system.
    #[serde(default)]
    pub(super) rules: Option<String>,
    /// How long the slices are in which the filter remembers. Seconds; 0: not known.
    #[serde(default)]
    slice_s: u32,
    /// Tells the key apart that viewers are hashed with.
    #[serde(default)]
    identity: Option<String>,
}

/// What an export of a shadow goes by.
pub(crate) struct Judged {
    pub(crate) partitions: u32,
    /// Seconds.
    pub(crate) slice_s: u32,
    pub(crate) identity: Option<String>,
}

/// Of a shadow whose verdicts can be exported; none: the folder is no shadow.
pub(crate) fn judged_again(folder: &Path) -> Result<Option<Judged>> {
    if !folder.join(FILE).exists() {
        return Ok(None);
    }
    let Some(shadow) = Shadow::read(folder)? else { return Ok(None) };
    let name = folder.display();
    if shadow.kind == Kind::Rebuild {
        bail!("{name} holds a live log's own verdicts, counted again: export the system that it is of");
    }
    if shadow.begin != shadow.from || shadow.items.is_some() || shadow.slice_s == 0 {
        bail!("{name} has a part of the views: only a shadow of all of them can be made live");
    }
    shadow.is_whole(folder)?;
    let partitions = u32::try_from(shadow.begin.len())?;
    Ok(Some(Judged { partitions, slice_s: shadow.slice_s, identity: shadow.identity }))
}

/// Of the key that viewers are hashed with; none if it is not known here.
fn fingerprint(config: &Config) -> Result<Option<String>> {
    let folder = &config.embedded.dir;
    if config.identity.fingerprint().is_some()
        || !folder.is_dir()
        || !crate::run::has_identity(folder, config)
    {
        return Ok(config.identity.fingerprint());
    }
    Ok(crate::run::identity(folder, config)?.fingerprint())
}

const FILE: &str = "shadow.json";

/// What a person asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Wish {
    pub(super) from_ms: Option<i64>,
    pub(super) to_ms: Option<i64>,
    pub(super) items: Option<Vec<String>>,
    /// Also where the log no longer has the beginning.
    pub(super) partial: bool,
    /// Other rules, as TOML.
    pub(super) rules: Option<String>,
}

impl Shadow {
    /// The folder's; none if there is no such folder, or it is empty.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        match std::fs::read(&path) {
            Ok(bytes) => {
                let shadow = serde_json::from_slice(&bytes);
                Ok(Some(shadow.with_context(|| format!("{} makes no sense", path.display()))?))
            }
            Err(_) if folder.read_dir().is_ok_and(|mut entries| entries.next().is_some()) => {
                bail!("{} is no shadow: name another folder", folder.display())
            }
            Err(_) => Ok(None),
        }
    }

    /// On the disk when it returns. From then on `onlooker run` refuses the folder.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        Mark::Shadow { of: self.generation.clone() }.write(folder)?;
        crate::run::write_privately(&folder.join(FILE), &serde_json::to_vec_pretty(self)?)
    }

    /// All counts that the folder has. An error where it was not read to the end: what is missing there would be taken for
    /// what is wrong elsewhere.
    pub(super) async fn rows(&self, folder: &Path, config: &Config) -> Result<ShadowRows> {
        self.is_whole(folder)?;
        let mut settings = config.embedded.clone();
        settings.partitions = u32::try_from(self.begin.len())?;
        crate::wiring::embedded::rows(folder, settings).await
    }

    fn is_whole(&self, folder: &Path) -> Result<()> {
        if self.read != self.until {
            let name = folder.display();
            bail!(
                "{name} is not whole, its reading was interrupted: run it again, and it goes on where it was"
            );
        }
        Ok(())
    }

    pub(super) fn topic(&self) -> Topic {
        match self.kind {
            Kind::Replay => Topic::Views,
            Kind::Rebuild => Topic::Counted,
        }
    }

    /// Offsets that are to be read.
    pub(super) fn offsets(&self) -> i64 {
        self.begin.iter().zip(&self.until).map(|(begin, until)| (until - begin).max(0)).sum()
    }

    /// A new one, or the one that lies in the folder, with what has come since.
    pub(super) async fn plan<S: Sight>(
        source: &Source<S>,
        folder: &Path,
        kind: Kind,
        wish: &Wish,
        config: &Config,
    ) -> Result<Self> {
        let before = Self::read(folder)?;
        // Of a shadow that was begun, what it has read may be gone.
        let may_lack = wish.partial || before.is_some();
        let planned = Self::fresh(source, kind, wish, may_lack, config).await?;
        let Some(mut before) = before else {
            return Ok(planned);
        };
        let name = folder.display();
        if (before.kind, &before.generation) != (planned.kind, &planned.generation) {
            bail!("{name} is a {:?} of log {}: name another folder", before.kind, before.generation);
        }
        if before.items != planned.items || (wish.from_ms.is_some() && before.from != planned.from) {
            bail!("{name} was begun with other --from or --item: name another folder");
        }
        if before.rules != planned.rules || ![0, planned.slice_s].contains(&before.slice_s) {
            bail!("{name} was begun by other rules: name another folder");
        }
        if planned.until.iter().zip(&before.until).any(|(now, before)| now < before) {
            bail!("{name} was read beyond --to already: name another folder");
        }
        before.until = planned.until;
        Ok(before)
    }

    async fn fresh<S: Sight>(
        source: &Source<S>,
        kind: Kind,
        wish: &Wish,
        may_lack: bool,
        config: &Config,
    ) -> Result<Self> {
        let topic = if kind == Kind::Replay { Topic::Views } else { Topic::Counted };
        let bounds = source.bounds(topic).await.context("the log")?;
        let slice_ms = i64::from(config.filter.slice_s) * 1_000;
        // What a view may meet was counted in its slice or in the one before.
        let begin_ms = wish.from_ms.map_or(0, |from_ms| match kind {
            Kind::Replay => ((from_ms.div_euclid(slice_ms) - 1) * slice_ms).max(0),
            Kind::Rebuild => from_ms,
        });
        let earliest: Vec<i64> = bounds.iter().map(|bounds| bounds.earliest).collect();
        let at = async |ms: i64| source.offsets_at(topic, ms).await.context("the log");
        let begin = if wish.from_ms.is_some() { at(begin_ms).await? } else { earliest.clone() };
        let from = match wish.from_ms {
            Some(from_ms) => at(from_ms).await?,
            None => begin.clone(),
        };
        let gone: Vec<usize> =
            (0..bounds.len()).filter(|at| earliest[*at] > 0 && begin[*at] <= earliest[*at]).collect();
        if !gone.is_empty() && !may_lack {
            bail!(
                "retention has removed what comes before offset {} of partition {} ({} partitions in all), which this range \
                 needs{}: --partial reads what is left",
                earliest[gone[0]],
                gone[0],
                gone.len(),
                wish.from_ms.map_or_else(String::new, |_| format!(", from {} on", time(begin_ms)))
            );
        }
        let mut until: Vec<i64> = match wish.to_ms {
            Some(to_ms) if to_ms < now_ms() => at(to_ms).await?,
            _ => bounds.iter().map(|bounds| bounds.stable).collect(),
        };
        if kind == Kind::Replay {
            // What the system itself has not judged has nothing to be compared with.
            for (until, judged) in until.iter_mut().zip(source.judged().await?) {
                *until = (*until).min(judged.unwrap_or(0));
            }
        }
        for (until, begin) in until.iter_mut().zip(&begin) {
            *until = (*until).max(*begin);
        }
        let generation = source.generation().to_owned();
        Ok(Self {
            kind,
            generation,
            begin,
            from,
            until,
            begin_ms,
            items: wish.items.clone(),
            read: Vec::new(),
            rules: wish.rules.clone(),
            slice_s: config.filter.slice_s,
            identity: fingerprint(config)?,
        })
    }
}
