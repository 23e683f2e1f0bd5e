//! What the clients cost while there is nothing to do and nobody to do it with. A binary of its own, since it looks at
//! the CPU time of the whole process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use onlooker_kafka::KafkaConfig;
use onlooker_ports::conformance::log::LogUnderTest;
use onlooker_ports::{GroupEvent, GroupReader, LogWriter, OutgoingBatch, Topic};
use onlooker_testkit::kafka::KafkaServer;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{KafkaLog, config, next};

const TICK: Duration = Duration::from_millis(100);
const WINDOW: Duration = Duration::from_secs(5);

/// User and system time of this process so far.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    // SAFETY: asks for a constant.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap();
    Duration::from_millis(ticks * 1_000 / per_second)
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_spins_while_the_broker_is_away() {
    let server = KafkaServer::start().unwrap();
    let small = KafkaConfig { queue_records: 10, delivery_timeout_ms: 1_000, ..config(&server.bootstrap()) };
    let log = KafkaLog::create(small, 8, 1).await;
    let writer = Arc::new(log.writer().await);
    let _transactor = log.transactor(Topic::Views).await;
    let mut reader = log.reader(Topic::Views, "idle").await;
    let mut ends = 0;
    while ends < 8 {
        match next(&mut reader, TICK).await {
            Some(GroupEvent::Assigned { partitions, .. }) => {
                for partition in partitions {
                    reader.start(partition, 0).await.unwrap();
                }
            }
            Some(GroupEvent::CaughtUp { .. }) => ends += 1,
            _ => {}
        }
    }
    let mut shares = Vec::new();
    for state in ["idle", "frozen", "killed"] {
        match state {
            "frozen" => server.pause().unwrap(),
            "killed" => server.kill().unwrap(),
            _ => {}
        }
        let (begun, before) = (Instant::now(), cpu());
        let mut refused = 0;
        while begun.elapsed() < WINDOW {
            let mut batch = OutgoingBatch::default();
            batch.push(Topic::Views, b"k", b"v");
            // As many at once as the queue takes, and no more: what a collector does while it answers 503.
            let append = async { writer.append(batch).await.is_err() };
            let (failed, _event) = tokio::join!(append, reader.next(TICK));
            refused += usize::from(failed);
        }
        shares.push((state, (cpu() - before).as_secs_f64() / begun.elapsed().as_secs_f64(), refused));
    }
    for (state, share, refused) in &shares {
        assert!(*share < 0.10, "{state}: {shares:?}");
        assert_eq!(*refused > 0, *state != "idle", "{state}: {shares:?}");
    }
}
