//! Whether Kafka lets us in.

use crate::config::KafkaConfig;
use crate::error::{failed, from_kafka};
use crate::health::{Health, Watched, serve};
use crate::settings;
use onlooker_ports::PortError;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use std::time::{Duration, Instant};

const ROUND: Duration = Duration::from_millis(500);

/// Connects, logs in, and asks a broker something.
///
/// # Errors
/// `Denied` within a second or two if password or certificate are wrong, which every other request would only report as
/// its own time-out; `Unavailable` if no broker answers within the request time-out.
pub async fn check_login(config: &KafkaConfig) -> Result<(), PortError> {
    let config = config.clone();
    let outcome = tokio::task::spawn_blocking(move || check(&config)).await;
    outcome.map_err(|error| failed(format_args!("the check ended early: {error}")))?
}

pub(crate) fn check(config: &KafkaConfig) -> Result<(), PortError> {
    let health = Health::new("login");
    let consumer: BaseConsumer<Watched> =
        BaseConsumer::from_config_and_context(&settings::admin(config), Watched::new(config, &health))
            .map_err(|error| from_kafka(&error, "making a client"))?;
    let begun = Instant::now();
    loop {
        let answer = consumer.fetch_metadata(Some(&config.topics.views), ROUND);
        serve(&consumer);
        match answer {
            Ok(_) => return Ok(()),
            Err(error) => {
                if let Some(refusal) = health.permanent() {
                    return Err(refusal);
                }
                if begun.elapsed() >= config.request_timeout() {
                    return Err(health.problem().unwrap_or_else(|| from_kafka(&error, "asking a broker")));
                }
            }
        }
    }
}
