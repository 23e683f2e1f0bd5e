//! The log's promises on one broker.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use onlooker_ports::conformance::log as suite;
use onlooker_testkit::shared;
use support::{KafkaLog, config};

async fn fresh(partitions: u32) -> KafkaLog {
    KafkaLog::create(config(&shared::kafka().bootstrap()), partitions, 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn conformance() {
    suite::all(fresh).await;
}
