//! `onlooker size`: what a load needs and costs, from our own measurements.

mod alone;
mod costs;
mod popularity;
mod prices;
mod show;
#[cfg(test)]
mod tests;
mod tiers;

use crate::cli::say;
use alone::{Alone, alone};
use anyhow::Result;
use costs::Costs;
use prices::Prices;
use serde::Serialize;
use std::path::PathBuf;
use tiers::{Cluster, cluster};

const GIB: f64 = 1_073_741_824.0;
/// 730 hours, as bills have it.
const MONTH_S: f64 = 730.0 * 3_600.0;

/// Says what a load needs: replicas, memory and cost of each tier of a cluster, and what one machine carries
///
/// With one machine of a tier lost, what is left is below 70 % busy. CPU is from our own measurements
/// (docs/performance.md), what was not measured is an assumption; each figure says which in
/// onlooker/src/size/costs.toml. Prices are an assumption too: put yours into a file like onlooker/src/size/prices.toml.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct SizeArgs {
    /// Views that arrive a second, at the peak
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    views_per_s: u64,
    /// Reads of counts a second, at the peak; of three items each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    reads_per_s: u64,
    /// Different items that are viewed within a month
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000_000))]
    items: u64,
    /// A file of prices (TOML)
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
}

/// Held to what the program says by a test.
const EXAMPLE: &str = include_str!("example.txt");

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Load {
    #[serde(rename = "views_per_s")]
    views: f64,
    #[serde(rename = "reads_per_s")]
    reads: f64,
    items: f64,
}

impl Load {
    /// The same mix, more or less of it; of as many items.
    fn times(&self, share: f64) -> Self {
        Self { views: self.views * share, reads: self.reads * share, ..*self }
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Size {
    load: Load,
    cluster: Cluster,
    one_machine: Alone,
}

fn size(load: Load, prices: &Prices) -> Result<Size> {
    let costs = Costs::measured()?;
    Ok(Size { load, cluster: cluster(&costs, prices, &load)?, one_machine: alone(&costs, prices, &load) })
}

/// Contacts nobody and needs no configuration.
pub(crate) fn run(args: &SizeArgs) -> Result<()> {
    let prices = Prices::load(args.prices.as_deref())?;
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let load =
        Load { views: args.views_per_s as f64, reads: args.reads_per_s as f64, items: args.items as f64 };
    let size = size(load, &prices)?;
    say(&if args.json { serde_json::to_string_pretty(&size)? + "\n" } else { show::text(&size) })
}
