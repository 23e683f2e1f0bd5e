//! What machines, disks and traffic cost.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A machine that can be had.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) vcpus: f64,
    pub(super) memory_gib: f64,
    /// Dollars a month.
    pub(super) month: f64,
}

/// All prices, in dollars.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Prices {
    pub(super) disk_gib: f64,
    pub(super) traffic_gib: f64,
    #[serde(rename = "machine", default)]
    pub(super) machines: Vec<Machine>,
}

impl Prices {
    /// Those of a file, or the ones that are built in.
    ///
    /// # Errors
    /// The file cannot be read, or a value in it cannot be: the message names it and the limit.
    pub(super) fn load(file: Option<&Path>) -> Result<Self> {
        let Some(file) = file else { return Self::read(include_str!("prices.toml")) };
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        Self::read(&text).with_context(|| format!("{} has no prices", file.display()))
    }

    fn read(text: &str) -> Result<Self> {
        let table: toml::Table = text.parse()?;
        let prices: Self = serde_path_to_error::deserialize(table)?;
        let within = |name: String, value: f64, least: f64, most: f64| {
            if !(least..=most).contains(&value) {
                bail!("{name} = {value}: must be between {least} and {most}");
            }
            Ok(())
        };
        within("disk_gib".into(), prices.disk_gib, 0.0, 1e6)?;
        within("traffic_gib".into(), prices.traffic_gib, 0.0, 1e6)?;
        if prices.machines.is_empty() {
            bail!("machine: there must be at least one [[machine]]");
        }
        for (at, machine) in prices.machines.iter().enumerate() {
            let key = |field: &str| format!("machine[{at}].{field}");
            if machine.name.trim().is_empty() {
                bail!("{}: is empty", key("name"));
            }
            within(key("vcpus"), machine.vcpus, 1.0, 1e4)?;
            within(key("memory_gib"), machine.memory_gib, 0.5, 1e5)?;
            within(key("month"), machine.month, 0.0, 1e7)?;
        }
        Ok(prices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prices_that_are_built_in_are_good() {
        assert!(Prices::load(None).unwrap().machines.len() > 3);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_limit() {
        let good = "disk_gib = 0.1\ntraffic_gib = 0\n[[machine]]\nname = \"a\"\nvcpus = 2\nmemory_gib = 8\nmonth = 70\n";
        assert!(Prices::read(good).is_ok());
        for (from, to, said) in [
            ("vcpus = 2", "vcpus = 0", "machine[0].vcpus = 0: must be between 1 and 10000"),
            ("month = 70", "month = -1", "machine[0].month = -1: must be between 0 and 10000000"),
            ("month = 70", "month = nan", "machine[0].month = NaN: must be between"),
            ("month = 70", "month = \"much\"", "machine[0].month: invalid type"),
            ("month = 70", "mouth = 70", "unknown field `mouth`"),
            ("disk_gib = 0.1\n", "", "missing field `disk_gib`"),
            ("name = \"a\"", "name = \" \"", "machine[0].name: is empty"),
        ] {
            let error = format!("{:#}", Prices::read(&good.replace(from, to)).unwrap_err());
            assert!(error.contains(said), "{error}");
        }
        let none = Prices::read("disk_gib = 0\ntraffic_gib = 0\n").unwrap_err().to_string();
        assert!(none.contains("at least one [[machine]]"), "{none}");
        let missing = format!("{:#}", Prices::load(Some(Path::new("/no/such/prices.toml"))).unwrap_err());
        assert!(missing.contains("/no/such/prices.toml"), "{missing}");
    }
}
