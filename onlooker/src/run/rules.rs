//! The rules that a folder's views are judged by, kept in the folder: who opens it only to read must not judge what waits
//! there by others, and who changes them must not change what was taken in before.

use super::secrets::write_privately;
use super::system::DEFAULT_SITE;
use crate::config::Config;
use crate::ops::JudgedBy;
use anyhow::{Context, Result};
use onlooker_collector::ItemMode;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

const RULES: &str = "rules.json";

/// What a verdict depends on besides the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rules {
    slice_s: u32,
    lateness_s: u32,
    sites: BTreeMap<String, SiteRule>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SiteRule {
    window_s: u32,
    items: ItemMode,
}

impl Rules {
    /// Those of a configuration; without sites there is one.
    pub(super) fn of(config: &Config) -> Self {
        let mut config = config.clone();
        if config.sites.is_empty() {
            config.sites.entry(DEFAULT_SITE.to_owned()).or_default();
        }
        let rule = |(name, site): (String, crate::config::SiteSettings)| {
            (name, SiteRule { window_s: site.window_s, items: site.items })
        };
        Self {
            slice_s: config.filter.slice_s,
            lateness_s: config.filter.lateness_s,
            sites: config.sites.into_iter().map(rule).collect(),
        }
    }

    /// Those that the folder was opened with last. None: it never was.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(RULES);
        match fs::read(&path) {
            Ok(bytes) => {
                let rules = serde_json::from_slice(&bytes);
                Ok(Some(rules.with_context(|| format!("{} says no rules", path.display()))?))
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Notes them, where they are other ones.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        if Self::read(folder)?.as_ref() == Some(self) {
            return Ok(());
        }
        write_privately(&folder.join(RULES), &serde_json::to_vec_pretty(self)?)
    }

    /// For who explains a verdict.
    pub(super) fn judged_by(&self) -> JudgedBy {
        let windows = self.sites.iter().map(|(name, rule)| (name.clone(), rule.window_s));
        JudgedBy { slice_s: self.slice_s, windows_s: windows.collect(), key_version: None }
    }

    /// Judges by them, whatever the configuration says. Sites that only the configuration has stay.
    pub(super) fn put_into(&self, config: &mut Config) {
        (config.filter.slice_s, config.filter.lateness_s) = (self.slice_s, self.lateness_s);
        for (name, rule) in &self.sites {
            let site = config.sites.entry(name.clone()).or_default();
            (site.window_s, site.items) = (rule.window_s, rule.items);
        }
    }
}
