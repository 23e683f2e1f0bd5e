//! Topics and tables: created and checked, as often as one likes.

use super::judged::judged_up_to;
use crate::config::Config;
use anyhow::{Context, Result, bail};
use onlooker_kafka::admin::{WantedTopic, apply_topics, commit_start, topic_id};
use onlooker_ports::{PortError, Position, Topic};
use onlooker_scylla::ScyllaArchive;
use onlooker_stage::Backoff;
use std::time::{Duration, Instant};

/// How long a new cluster may take until it serves groups.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Subcommand)]
pub(crate) enum TopicsCommand {
    /// Creates what is missing, and says where the rest differs
    Apply {
        /// Put settings right that can be changed without moving data
        #[arg(long)]
        fix: bool,
        /// Let the filters begin where they have no committed offset although the topic existed before: behind the last
        /// view of each partition that has a verdict in the log, which is read for it
        #[arg(long)]
        start_groups: bool,
    },
}

/// The topics as they should be.
pub(super) fn wanted(config: &Config) -> Result<[WantedTopic; 4]> {
    let specs = onlooker_schemas::topics::topics()?;
    let roles = [
        (Topic::Views, specs.views),
        (Topic::Counted, specs.counted),
        (Topic::Ignored, specs.ignored),
        (Topic::Dead, specs.dead),
    ];
    Ok(roles.map(|(topic, mut spec)| {
        if matches!(topic, Topic::Views | Topic::Counted) {
            spec.partitions = config.layout.partitions;
        }
        if let Some(replication) = config.cluster.topics.replication {
            spec.replication = replication;
        }
        WantedTopic { topic, spec }
    }))
}

pub(crate) async fn topics(command: TopicsCommand, config: &Config) -> Result<()> {
    let TopicsCommand::Apply { fix, start_groups } = command;
    let wanted = wanted(config)?;
    let reports = apply_topics(&config.cluster.kafka, &wanted, fix).await?;
    let mut differs = false;
    for report in &reports {
        let state = match (report.created, report.drift.is_empty()) {
            (true, _) => "created",
            (false, true) => "as it should be",
            (false, false) => "differs",
        };
        println!("topic {}: {state}", report.name);
        for drift in &report.drift {
            println!("  {drift}");
            differs |= !drift.fixed;
        }
    }
    // The counters' group needs no start: where they begin is what the archive says.
    let views = config.cluster.kafka.topics.get(Topic::Views);
    let created = reports.iter().any(|r| r.name == views && r.created);
    if created || start_groups {
        let group = &config.cluster.kafka.groups.filter;
        let judged = if created { Vec::new() } else { judged_up_to(config).await? };
        let begun = start_group(config, group, &judged).await.with_context(|| {
            format!(
                "group {group} could not be started; stop the filters, then run `onlooker topics apply \
                     --start-groups`"
            )
        })?;
        for Position { partition, offset, .. } in begun {
            println!("group {group}: partition {partition} of {views} begins at offset {offset}");
        }
    }
    if differs {
        bail!("some topics differ from what they should be");
    }
    Ok(())
}

/// A cluster that is new makes its own topics for groups and transactions first, and refuses for some seconds.
pub(super) async fn start_group(
    config: &Config,
    group: &str,
    from: &[Position],
) -> Result<Vec<Position>, PortError> {
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));
    let begun = Instant::now();
    loop {
        match commit_start(&config.cluster.kafka, Topic::Views, group, from).await {
            Err(error) if error.is_transient() && begun.elapsed() < PATIENCE => {
                tokio::time::sleep(backoff.next_delay()).await;
            }
            other => return other,
        }
    }
}

/// Creates and checks the archive's tables
#[derive(Debug, clap::Args)]
pub(crate) struct SchemaArgs {
    #[command(subcommand)]
    command: SchemaCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SchemaCommand {
    /// Creates what is missing, says where the rest differs, and notes which topic the log is
    Apply,
    /// Says where tables are missing or differ, and changes nothing
    Check,
}

pub(crate) async fn schema(args: SchemaArgs, config: &Config) -> Result<()> {
    let apply = matches!(args.command, SchemaCommand::Apply);
    let report = if apply {
        onlooker_scylla::apply(&config.cluster.archive).await?
    } else {
        onlooker_scylla::check(&config.cluster.archive).await?
    };
    for name in &report.created {
        println!("created {name}");
    }
    for drift in &report.drift {
        println!("{} {drift}", if drift.breaks { "error:" } else { "note:" });
    }
    if report.created.is_empty() && report.drift.is_empty() {
        println!("all tables are as they should be");
    }
    if report.is_broken() {
        bail!("the archive's tables are not what they should be");
    }
    if apply {
        claim(config, &ScyllaArchive::new(&config.cluster.archive, &config.layout.generation)?).await?;
    }
    Ok(())
}

/// Ties the log's name to the topic that it is: a topic that was deleted and made again is another log, whatever its
/// name.
pub(crate) async fn claim(config: &Config, archive: &ScyllaArchive) -> Result<()> {
    let id = topic_id(&config.cluster.kafka, Topic::Counted)
        .await
        .context("run `onlooker topics apply` before `onlooker schema apply`")?;
    archive.claim_log(&id, config.layout.partitions).await?;
    println!("log {}: topic {id} with {} partitions", config.layout.generation, config.layout.partitions);
    Ok(())
}
