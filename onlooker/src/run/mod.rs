//! `onlooker run`: everything in one process, with one folder.

mod front;
mod rules;
mod secrets;
mod system;

#[cfg(feature = "cluster")]
pub(crate) use front::Front;
use rules::Rules;
pub(crate) use secrets::{Session, adopt_identity, has_identity, identity, write_privately};
pub(crate) use system::{DEFAULT_SITE, System};

use crate::carry::{self, Mark};
use crate::config::Config;
use crate::ops;
use crate::process::{Process, bind};
use anyhow::{Context, Result};
use axum::Router;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Runs everything in one process: views in, counts out, one folder on disk
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The folder; made if it is not there (default: embedded.dir, which is ./onlooker-data)
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
}

/// What differs from the defaults of a cluster, where nothing else is set: no step waits for company on a network.
pub(crate) const DEFAULTS: &str = r#"
[admin]
listen = "127.0.0.1:8082"
[filter]
batch_records = 10000
transaction_records = 20000
linger_ms = 2
[counter]
batch_records = 5000
applies_at_once = 256
linger_ms = 2
durable_ms = 2000
[flusher]
page_keys = 2048
"#;

/// Runs until it is told to stop.
pub(crate) async fn run(args: RunArgs, mut config: Config) -> Result<()> {
    if let Some(dir) = args.dir {
        config.embedded.dir = dir;
    }
    Mark::refuse(&config.embedded.dir)?;
    let mut process = Process::start(&config)?;
    by_former_rules(&config).await?;
    let mut system = system::add(&mut config, &process.health, &mut process.supervisor).await?;
    let admin = bind("admin.listen", config.admin.listen).await?;
    system.session.admin = format!("http://{}", admin.local_addr()?);
    let export = carry::route(
        Arc::new(system.store.place()),
        &config,
        config.identity.fingerprint(),
        system.session.admin_token.clone(),
    );
    let ops = ops::route(system.store.sight(), system.session.admin_token.clone());
    let (sight, ledger) = (system.store.sight(), config.ledger.clone());
    let sites: Vec<String> = config.sites.keys().cloned().collect();
    process.supervisor.room("ledger", |stop| ops::keep_ledger(sight, ledger, sites, stop));
    let routes = Router::new().merge(export).merge(ops);
    #[cfg(feature = "cluster")]
    let routes = routes.merge(carry::promote_route(&system, &config, system.session.admin_token.clone()));
    process.admin(admin, routes);
    let System { store, session, .. } = system;
    session.write(store.path())?;
    tracing::info!(role = "run", version = env!("CARGO_PKG_VERSION"), created = store.created(), "started");
    let folder = store.path().to_owned();
    greet(&config, &session, &folder.display().to_string());
    let ended = process.supervisor.run().await;
    Session::remove(&folder);
    store.close().await;
    ended.context("onlooker did not end well")
}

/// What a folder's views are judged by; nothing, where it was never opened.
pub(crate) fn judged_by(folder: &Path) -> Result<ops::JudgedBy> {
    Ok(Rules::read(folder)?.map(|rules| rules.judged_by()).unwrap_or_default())
}

/// Lets a configuration judge as the folder's views are judged, whatever it says itself.
pub(crate) fn judge_as(config: &mut Config) -> Result<()> {
    if let Some(rules) = Rules::read(&config.embedded.dir)? {
        rules.put_into(config);
    }
    Ok(())
}

/// What waits in the folder was taken in under the rules that it was opened with last, and is judged by them first.
async fn by_former_rules(config: &Config) -> Result<()> {
    let Some(former) = Rules::read(&config.embedded.dir)? else { return Ok(()) };
    if former == Rules::of(config) {
        return Ok(());
    }
    tracing::info!("rules have changed, what waits is judged by the former ones first");
    let mut before = config.clone();
    // Only those: a site of today has no views yet.
    before.sites.clear();
    with_system(before, false, async |_, _| Ok(())).await
}

/// Tells a person what to try. Log lines go to standard error, this to standard output.
fn greet(config: &Config, session: &Session, folder: &str) {
    let one = config.sites.len() == 1 && config.sites.values().all(|site| site.key.is_none());
    let site = config.sites.keys().next().map_or(DEFAULT_SITE, String::as_str);
    let (body, query) = if one {
        (r#"{"item":"hello"}"#.to_owned(), "item=hello".to_owned())
    } else {
        (format!(r#"{{"site":"{site}","item":"hello"}}"#), format!("site={site}&item=hello"))
    };
    let url = &session.url;
    let text = format!(
        "\nOnlooker {} is counting into {folder}\n\n  \
         send a view    curl -d '{body}' {url}/v1/views\n  \
         read a count   curl '{url}/v1/counts?{query}'\n  \
         open           {url}/\n  \
         its health     {}/readyz, its metrics {}/metrics\n\n\
         Ctrl-C stops it.\n",
        env!("CARGO_PKG_VERSION"),
        session.admin,
        session.admin
    );
    // Nobody may be reading.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Opens a folder that no process has open, does something against its address, and closes it again.
pub(crate) async fn with_folder<T>(
    config: Config,
    act: impl AsyncFnOnce(&Session) -> Result<T>,
) -> Result<T> {
    with_system(config, false, async |system, _| act(&system.session).await).await
}

/// Likewise, for who looks into the folder itself; everything that its log has is counted by then. The configuration is
/// complete. `marked`: also a folder on whose way something was begun.
pub(crate) async fn with_system<T>(
    mut config: Config,
    marked: bool,
    act: impl AsyncFnOnce(&System, &Config) -> Result<T>,
) -> Result<T> {
    use onlooker_stage::{Health, ShutdownTrigger, Supervisor};
    if !marked {
        Mark::refuse(&config.embedded.dir)?;
    }
    judge_as(&mut config)?;
    config.collector.listen = ([127, 0, 0, 1], 0).into();
    let trigger = ShutdownTrigger::default();
    let mut supervisor = Supervisor::new(trigger.clone(), Duration::from_millis(config.process.drain_ms));
    let health = Health::new();
    let system = system::add(&mut config, &health, &mut supervisor).await?;
    let running = tokio::spawn(supervisor.run());
    let done = async {
        system::counted(&system.store, &health).await?;
        let done = act(&system, &config).await?;
        system::counted(&system.store, &health).await?;
        anyhow::Ok(done)
    }
    .await;
    trigger.request();
    running.await.context("the rooms ended early")?.context("the folder was not closed in good order")?;
    system.store.close().await;
    done
}
