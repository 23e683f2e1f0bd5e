//! The sections of the configuration file. One file serves all roles; each role reads what it needs.

use super::layers::Layers;
use super::read::{Fault, Faults, section};
use crate::ops::LedgerConfig;
use crate::run::DEFAULT_SITE;
use crate::wiring::embedded::EmbeddedConfig;
use onlooker_collector::{AcceptTraces, CollectorConfig, IdentityConfig, ItemMode, SiteConfig};
use onlooker_counter::CounterConfig;
use onlooker_counts_api::{CountsApiConfig, SiteConfig as ReadSite};
use onlooker_event::SiteId;
use onlooker_filter::{FilterConfig, SiteRules, Sites};
use onlooker_flusher::FlusherConfig;
use onlooker_ports::Secret;
use onlooker_stage::telemetry::LogConfig;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use toml::{Table, Value};

/// Everything, read and checked. Serialised, it is a file that says the same, but for secrets.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Config {
    pub(crate) logging: LogConfig,
    pub(crate) admin: AdminConfig,
    pub(crate) process: ProcessConfig,
    pub(crate) layout: LayoutConfig,
    /// The servers of a cluster.
    #[cfg(feature = "cluster")]
    #[serde(flatten)]
    pub(crate) cluster: super::cluster::ClusterConfig,
    pub(crate) embedded: EmbeddedConfig,
    pub(crate) identity: IdentityConfig,
    pub(crate) collector: CollectorSection,
    pub(crate) filter: FilterConfig,
    pub(crate) counter: CounterConfig,
    pub(crate) flusher: FlusherConfig,
    pub(crate) counts_api: CountsApiSection,
    pub(crate) ledger: LedgerConfig,
    pub(crate) sites: BTreeMap<String, SiteSettings>,
}

/// `[admin]`: health and metrics, on a listener of their own.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AdminConfig {
    /// Where it listens. Each role of a machine needs an address of its own; port 0 takes any free one and logs it.
    pub(crate) listen: SocketAddr,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 0)) }
    }
}

/// `[process]`: how a process ends.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProcessConfig {
    /// How long all rooms together may drain after a stop was asked for. Milliseconds.
    pub(crate) drain_ms: u64,
}

impl Default for ProcessConfig {
    fn default() -> Self {
        Self { drain_ms: 30_000 }
    }
}

/// `[layout]`: what must be the same in every process, for the whole life of a log.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LayoutConfig {
    /// The name of the log's generation: another name when topics are made anew or get other partitions.
    pub(crate) generation: String,
    /// Partitions of `views` and of `views.counted`.
    pub(crate) partitions: u32,
}

impl Default for LayoutConfig {
    fn default() -> Self {
        Self { generation: "g1".into(), partitions: 8 }
    }
}

impl LayoutConfig {
    /// What could not stand in the names of keys; both limits are those of the Redis adapter.
    fn faults(&self) -> Vec<Fault> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        let mut faults = Vec::new();
        if !(1..=32).contains(&self.generation.len()) || !self.generation.bytes().all(plain) {
            faults.push(Fault::new("layout.generation", "must be 1 to 32 of A-Z a-z 0-9 _ -"));
        }
        if !(1..=4_096).contains(&self.partitions) {
            faults.push(Fault::new("layout.partitions", "must be 1 to 4096"));
        }
        faults
    }
}

/// `[collector]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CollectorSection {
    pub(crate) listen: SocketAddr,
    pub(crate) max_body_bytes: usize,
    pub(crate) max_view_bytes: usize,
    pub(crate) max_items: usize,
    pub(crate) max_inflight_bytes: usize,
    pub(crate) body_timeout_ms: u64,
    pub(crate) append_timeout_ms: u64,
    pub(crate) max_connections: usize,
    pub(crate) lame_duck_ms: u64,
    pub(crate) drain_ms: u64,
    pub(crate) trusted_proxies: Vec<ipnet::IpNet>,
    pub(crate) accept_traces: AcceptTraces,
}

impl Default for CollectorSection {
    fn default() -> Self {
        let rooms = CollectorConfig::default();
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            max_body_bytes: rooms.max_body_bytes,
            max_view_bytes: rooms.max_view_bytes,
            max_items: rooms.max_items,
            max_inflight_bytes: rooms.max_inflight_bytes,
            body_timeout_ms: ms(rooms.body_timeout),
            append_timeout_ms: ms(rooms.append_timeout),
            max_connections: rooms.max_connections,
            lame_duck_ms: ms(rooms.lame_duck),
            drain_ms: ms(rooms.drain),
            trusted_proxies: Vec::new(),
            accept_traces: rooms.accept_traces,
        }
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `[counts_api]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CountsApiSection {
    pub(crate) listen: SocketAddr,
    pub(crate) max_items: usize,
    pub(crate) max_day_reads: usize,
    pub(crate) max_days: usize,
    pub(crate) max_ranges: usize,
    pub(crate) max_body_bytes: usize,
    pub(crate) body_timeout_ms: u64,
    pub(crate) answer_timeout_ms: u64,
    pub(crate) max_age_s: u32,
    pub(crate) max_connections: usize,
    pub(crate) lame_duck_ms: u64,
    pub(crate) drain_ms: u64,
}

impl Default for CountsApiSection {
    fn default() -> Self {
        let room = CountsApiConfig::default();
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8081)),
            max_items: room.max_items,
            max_day_reads: room.max_day_reads,
            max_days: room.max_days,
            max_ranges: room.max_ranges,
            max_body_bytes: room.max_body_bytes,
            body_timeout_ms: ms(room.body_timeout),
            answer_timeout_ms: ms(room.answer_timeout),
            max_age_s: room.max_age_s,
            max_connections: room.max_connections,
            lame_duck_ms: ms(room.lame_duck),
            drain_ms: ms(room.drain),
        }
    }
}

/// `[sites.NAME]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SiteSettings {
    /// The public key that pages send; none: the site's name is enough.
    pub(crate) key: Option<String>,
    /// Origins whose pages may send views; `*` for any.
    pub(crate) origins: Vec<String>,
    /// The token of the site's own back ends.
    pub(crate) token: Option<Secret>,
    /// `opaque`, or `url` for ids that are paths.
    pub(crate) items: ItemMode,
    /// Whether a page's `session` identifies its viewer.
    pub(crate) sessions: bool,
    /// A viewer's views of an item less than this apart are one. Seconds.
    pub(crate) window_s: u32,
}

impl Default for SiteSettings {
    fn default() -> Self {
        let site = SiteConfig::default();
        Self {
            key: site.key,
            origins: site.origins,
            token: site.token,
            items: site.items,
            sessions: site.sessions,
            window_s: SiteRules::default().window_s,
        }
    }
}

/// Sections in the order of the file, beside those of a cluster.
const SECTIONS: [&str; 12] = [
    "logging",
    "admin",
    "process",
    "layout",
    "embedded",
    "identity",
    "collector",
    "filter",
    "counter",
    "flusher",
    "counts_api",
    "ledger",
];

/// Sections that name a cluster's servers.
const CLUSTER_SECTIONS: [&str; 5] = ["topics", "log", "dedup", "counters", "archive"];

fn unknown_section(name: &str, faults: &mut Vec<Fault>) {
    if CLUSTER_SECTIONS.contains(&name) {
        if cfg!(not(feature = "cluster")) {
            faults.push(Fault::new(
                name,
                "is for a cluster: this program was built without `--features cluster`",
            ));
        }
    } else if name != "sites" && !SECTIONS.contains(&name) {
        let mut all = SECTIONS.to_vec();
        if cfg!(feature = "cluster") {
            all.extend(CLUSTER_SECTIONS);
        }
        faults
            .push(Fault::new(name, format!("unknown section; there are {} and sites.NAME", all.join(", "))));
    }
}

impl Config {
    /// Tells the log's clients over how many partitions its keys are spread.
    #[cfg_attr(not(feature = "cluster"), expect(unused_mut, reason = "there are no clients"))]
    fn with_layout(mut self) -> Self {
        #[cfg(feature = "cluster")]
        {
            self.cluster.kafka.partitions = self.layout.partitions;
        }
        self
    }

    /// The same with other rules: what a verdict depends on besides the log, of the sections `[filter]` and `[sites]`.
    /// What they do not set stays.
    pub(crate) fn with_rules(&self, rules: &Table) -> anyhow::Result<Config> {
        let mut sites = Table::new();
        for (name, site) in &self.sites {
            let mut kept = Table::new();
            kept.insert("window_s".into(), Value::Integer(site.window_s.into()));
            kept.insert("items".into(), Value::try_from(site.items)?);
            sites.insert(name.clone(), Value::Table(kept));
        }
        let mut kept = Table::new();
        kept.insert("filter".into(), Value::try_from(&self.filter)?);
        kept.insert("sites".into(), Value::Table(sites));
        let other = Config::read(&Layers { tree: rules.clone(), faults: Vec::new() }.over(&kept))?;
        let mut config = self.clone();
        (config.filter.slice_s, config.filter.lateness_s) = (other.filter.slice_s, other.filter.lateness_s);
        for (name, site) in other.sites {
            let own = config.sites.entry(name).or_default();
            (own.window_s, own.items) = (site.window_s, site.items);
        }
        Ok(config)
    }

    /// Reads all sections and reports all faults at once.
    pub(crate) fn read(layers: &Layers) -> Result<Config, Faults> {
        let mut faults = layers.faults.clone();
        let empty = Table::new();
        for (key, value) in &layers.tree {
            unknown_section(key, &mut faults);
            if !value.is_table() {
                faults.push(Fault::new(key, format!("is a {}, not a section", value.type_str())));
            }
        }
        let table = |name: &str| layers.tree.get(name).and_then(Value::as_table).unwrap_or(&empty);
        macro_rules! read {
            ($name:literal) => {
                section($name, table($name), &mut faults)
            };
        }
        let logging = read!("logging");
        let admin = read!("admin");
        let process = read!("process");
        let layout: Option<LayoutConfig> = read!("layout");
        #[cfg(feature = "cluster")]
        let cluster = super::cluster::ClusterConfig::read(table, &mut faults);
        let identity =
            if table("identity").is_empty() { Some(IdentityConfig::default()) } else { read!("identity") };
        let embedded: Option<EmbeddedConfig> = read!("embedded");
        let collector = read!("collector");
        let filter: Option<FilterConfig> = read!("filter");
        let counter: Option<CounterConfig> = read!("counter");
        let flusher: Option<FlusherConfig> = read!("flusher");
        let counts_api = read!("counts_api");
        let ledger = read!("ledger");
        let mut sites = BTreeMap::new();
        for (name, value) in table("sites") {
            let key = format!("sites.{name}");
            let Some(settings) = value.as_table() else {
                faults.push(Fault::new(key, "is not a table"));
                continue;
            };
            if let Some(site) = section::<SiteSettings>(&key, settings, &mut faults) {
                if site.window_s == 0 {
                    faults.push(Fault::new(format!("{key}.window_s"), "must be at least 1"));
                }
                sites.insert(name.clone(), site);
            }
        }
        faults.extend(layout.iter().flat_map(LayoutConfig::faults));
        let of_embedded = embedded.iter().flat_map(EmbeddedConfig::faults);
        faults.extend(of_embedded.map(|(key, problem)| Fault::new(format!("embedded.{key}"), problem)));
        // Where none is configured there is one, with the defaults.
        let judged = match sites.is_empty() {
            true => filter_sites(&BTreeMap::from([(DEFAULT_SITE.to_owned(), SiteSettings::default())])),
            false => filter_sites(&sites),
        };
        if let (Some(embedded), Some(filter)) = (&embedded, &filter) {
            let hours = embedded.log.verdicts_retention_hours;
            if hours.saturating_mul(3_600) < 2 * u64::from(filter.slice_s) {
                let problem = format!(
                    "must be at least two filter.slice_s, {} s: the filter's memory is rebuilt from verdicts; is {hours} h",
                    2 * u64::from(filter.slice_s)
                );
                faults.push(Fault::new("embedded.log.verdicts_retention_hours", problem));
            }
        }
        let rooms = [
            ("filter", filter.as_ref().map(|f| f.faults(&judged))),
            ("counter", counter.as_ref().map(CounterConfig::faults)),
            ("flusher", flusher.as_ref().map(FlusherConfig::faults)),
        ];
        for (room, problems) in rooms {
            let problems = problems.unwrap_or_default();
            faults.extend(problems.into_iter().map(|(key, p)| Fault::new(format!("{room}.{key}"), p)));
        }
        let whole = (|| {
            Some(Config {
                logging: logging?,
                admin: admin?,
                process: process?,
                layout: layout?,
                #[cfg(feature = "cluster")]
                cluster: cluster?,
                embedded: embedded?,
                identity: identity?,
                collector: collector?,
                filter: filter?,
                counter: counter?,
                flusher: flusher?,
                counts_api: counts_api?,
                ledger: ledger?,
                sites,
            })
        })();
        if let Some(config) = &whole {
            // Who runs no collector needs no key.
            faults.extend(collector_faults(config, !table("identity").is_empty()));
            faults.extend(counts_api_faults(config));
        }
        match whole {
            Some(config) if faults.is_empty() => Ok(config.with_layout()),
            _ => Err(Faults(faults)),
        }
    }

    /// What the collector needs.
    pub(crate) fn collector(&self) -> CollectorConfig {
        let section = &self.collector;
        let sites = self.sites.iter().map(|(name, site)| {
            let config = SiteConfig {
                key: site.key.clone(),
                origins: site.origins.clone(),
                token: site.token.clone(),
                items: site.items,
                sessions: site.sessions,
            };
            (name.clone(), config)
        });
        CollectorConfig {
            max_body_bytes: section.max_body_bytes,
            max_view_bytes: section.max_view_bytes,
            max_items: section.max_items,
            max_inflight_bytes: section.max_inflight_bytes,
            body_timeout: Duration::from_millis(section.body_timeout_ms),
            append_timeout: Duration::from_millis(section.append_timeout_ms),
            max_connections: section.max_connections,
            lame_duck: Duration::from_millis(section.lame_duck_ms),
            drain: Duration::from_millis(section.drain_ms),
            trusted_proxies: section.trusted_proxies.clone(),
            accept_traces: section.accept_traces,
            identity: self.identity.clone(),
            sites: sites.collect(),
        }
    }

    /// What the counts API needs.
    pub(crate) fn counts_api(&self) -> CountsApiConfig {
        let section = &self.counts_api;
        let sites = self.sites.iter().map(|(name, site)| (name.clone(), ReadSite { items: site.items }));
        CountsApiConfig {
            sites: sites.collect(),
            max_items: section.max_items,
            max_day_reads: section.max_day_reads,
            max_days: section.max_days,
            max_ranges: section.max_ranges,
            max_body_bytes: section.max_body_bytes,
            body_timeout: Duration::from_millis(section.body_timeout_ms),
            answer_timeout: Duration::from_millis(section.answer_timeout_ms),
            max_age_s: section.max_age_s,
            max_connections: section.max_connections,
            lame_duck: Duration::from_millis(section.lame_duck_ms),
            drain: Duration::from_millis(section.drain_ms),
        }
    }

    /// What the filter needs to know of the sites.
    pub(crate) fn filter_sites(&self) -> Sites {
        filter_sites(&self.sites)
    }
}

fn collector_faults(config: &Config, with_identity: bool) -> Vec<Fault> {
    let faults = config.collector().faults();
    let ours = faults.into_iter().filter(|fault| with_identity || !fault.key.starts_with("identity."));
    ours.map(|fault| Fault::new(fault.key, fault.problem)).collect()
}

/// Without those of the sites, which the collector names.
fn counts_api_faults(config: &Config) -> Vec<Fault> {
    let faults = config.counts_api().faults().into_iter().filter(|fault| !fault.key.starts_with("sites."));
    faults.map(|fault| Fault::new(format!("counts_api.{}", fault.key), fault.problem)).collect()
}

fn filter_sites(sites: &BTreeMap<String, SiteSettings>) -> Sites {
    let rules = |site: &SiteSettings| SiteRules { window_s: site.window_s };
    sites.iter().filter_map(|(name, site)| Some((SiteId::new(name).ok()?, rules(site)))).collect()
}
