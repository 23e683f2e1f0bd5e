//! The log's promises, on the real disk by both settings.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use onlooker_embedded::log::files::Disk;
use onlooker_embedded::log::{
    Durability, EmbeddedHistory, EmbeddedLog, EmbeddedMembership, EmbeddedObserver, EmbeddedReader,
    EmbeddedTransactor, EmbeddedWriter, LogConfig,
};
use onlooker_ports::Topic;
use onlooker_ports::conformance::log::{self as suite, LogUnderTest};
use tempfile::TempDir;

struct LogInFolder {
    log: EmbeddedLog,
    _dir: TempDir,
}

impl LogUnderTest for LogInFolder {
    type Writer = EmbeddedWriter<Disk>;
    type Membership = EmbeddedMembership;
    type Reader = EmbeddedReader<Disk>;
    type Transactor = EmbeddedTransactor<Disk>;
    type History = EmbeddedHistory<Disk>;
    type Observer = EmbeddedObserver<Disk>;

    async fn writer(&self) -> Self::Writer {
        self.log.writer()
    }

    async fn reader(&self, topic: Topic, group: &str) -> Self::Reader {
        self.log.reader(topic, group)
    }

    async fn transactor(&self, inputs: Topic) -> Self::Transactor {
        self.log.transactor(inputs)
    }

    async fn history(&self) -> Self::History {
        self.log.history()
    }

    async fn observer(&self) -> Self::Observer {
        self.log.observer("filter", "counter")
    }

    async fn delete_before(&self, topic: Topic, partition: i32, offset: i64) {
        self.log.delete_before(topic, partition.cast_unsigned(), offset).await.unwrap();
    }
}

fn fresh(partitions: u32, config: LogConfig) -> LogInFolder {
    let dir = TempDir::new().unwrap();
    let (log, report) = EmbeddedLog::open(dir.path(), partitions, config).unwrap();
    assert!(report.created);
    LogInFolder { log, _dir: dir }
}

#[tokio::test(flavor = "multi_thread")]
async fn conformance_as_by_default() {
    suite::all(async |partitions| fresh(partitions, LogConfig::default())).await;
}

/// Small files and no memory of the newest records: everything is read back from files.
#[tokio::test(flavor = "multi_thread")]
async fn conformance_from_files() {
    let config = LogConfig {
        durability: Durability::Process,
        segment_bytes: 4_096,
        tail_bytes: 0,
        batch_records: 7,
        ..LogConfig::default()
    };
    suite::all(async |partitions| fresh(partitions, config.clone())).await;
}
