//! What of one process moves from its folder to a cluster.

use crate::carry::Door;
use crate::config::Config;
use anyhow::Result;
use onlooker_counts_api::Window;
use onlooker_embedded::log::EmbeddedWriter;
use onlooker_embedded::log::files::Disk;
use onlooker_kafka::KafkaWriter;
use onlooker_ports::CountReader;
use onlooker_redis::RedisReader;
use onlooker_stage::Health;
use std::time::Duration;

/// The collector's log.
pub(crate) type CollectorLog = Door<EmbeddedWriter<Disk>, KafkaWriter>;

/// How often the cluster's counters are looked for.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A window onto the cluster's counts, as soon as its counters stand in every partition. Until then it would answer that
/// nothing is known.
pub(crate) async fn window(config: &Config) -> Result<Window<RedisReader>> {
    let reader = super::cluster::counts_reader(config).await?;
    let partitions: Vec<i32> = (0..).take(config.layout.partitions as usize).collect();
    loop {
        let begun = match reader.partitions().await {
            Ok(Some(_)) => reader.states(&partitions).await.map(|states| states.iter().all(Option::is_some)),
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        match begun {
            // Its readiness is the cluster's own affair.
            Ok(true) => return Ok(Window::open(config.counts_api(), reader, &Health::new())?),
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "the cluster's counters did not answer"),
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
