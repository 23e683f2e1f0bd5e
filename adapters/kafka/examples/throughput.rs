//! CPU time per record of writer, reader and transactor, ours and the broker's.
//!
//! `cargo run --release -p onlooker-kafka --example throughput -- [records [writer|reader|transactor|steady]…]`;
//! starts a broker of its own.

#![expect(clippy::unwrap_used, reason = "a measurement that fails has nothing to say")]

use onlooker_kafka::admin::{WantedTopic, apply_topics};
use onlooker_kafka::{Compression, KafkaConfig, KafkaReader, KafkaTransactor, KafkaWriter};
use onlooker_ports::{GroupEvent, GroupReader, LogWriter, OutgoingBatch, Position, Topic, Transactor};
use onlooker_testkit::java::Jvm;
use onlooker_testkit::kafka::KafkaServer;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PARTITIONS: u32 = 8;
const WAIT: Duration = Duration::from_secs(1);

#[tokio::main(worker_threads = 2)]
async fn main() {
    let records: usize = std::env::args().nth(1).map_or(400_000, |n| n.parse().unwrap());
    let parts: Vec<String> = std::env::args().skip(2).collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    let server = KafkaServer::builder().jvm(Jvm::lasting(512)).start().unwrap();
    // Twice: in the first round the broker's compiler is still at work.
    for (round, compression) in (0..2).flat_map(|n| [(n, Compression::None), (n, Compression::Lz4)]) {
        let config = self::config(&server, &format!("{round}.{compression:?}"), compression).await;
        let named = |what: &str| format!("{what}, {compression:?}");
        if wanted("writer") {
            write(&server, &config, &named("writer, 1 a batch, 256 at once"), records / 4, 1, 256).await;
            latency(&config).await;
        }
        write(&server, &config, &named("writer, 100 a batch, 8 at once"), records, 100, 8).await;
        if wanted("reader") {
            read(&server, &config, &named("reader"), records).await;
        }
        if wanted("steady") {
            for (min_bytes, wait_ms) in [(1, 200), (16 << 10, 20), (64 << 10, 50)] {
                let config =
                    KafkaConfig { fetch_min_bytes: min_bytes, fetch_wait_ms: wait_ms, ..config.clone() };
                steady(&server, &config, &named(&format!("steady, {min_bytes} bytes or {wait_ms} ms"))).await;
            }
        }
        for size in [200, 1_000, 5_000] {
            if wanted("transactor") {
                let what = named(&format!("transactor, {size} a transaction"));
                transact(&server, &config, &what, records.min(size * 1_000), size).await;
            }
        }
    }
}

async fn config(server: &KafkaServer, name: &str, compression: Compression) -> KafkaConfig {
    let mut config = KafkaConfig { brokers: vec![server.bootstrap()], compression, ..KafkaConfig::default() };
    config.topics.views = format!("{name}.views");
    config.topics.counted = format!("{name}.counted");
    let mut spec = onlooker_schemas::topics::topics().unwrap().views;
    (spec.partitions, spec.replication) = (PARTITIONS, 1);
    let wanted = [Topic::Views, Topic::Counted].map(|topic| WantedTopic { topic, spec: spec.clone() });
    apply_topics(&config, &wanted, false).await.unwrap();
    config
}

/// About what a view is: a key of 16 random bytes, and a value of 134 of which half are random ids and times.
fn fill(batch: &mut OutgoingBatch, topic: Topic, number: usize) {
    let mut state = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let key = [random(), random()].concat();
    batch.push_with(topic, &key, |out| {
        for _ in 0..8 {
            out.extend_from_slice(&random());
        }
        let item = u64::from_le_bytes(random()) % 100_000;
        let text = format!("example.org /a/fairly/ordinary/path/to/an/article-{item:06}?from=home&page=1");
        out.extend_from_slice(&text.as_bytes()[..70]);
    });
}

async fn write(
    server: &KafkaServer,
    config: &KafkaConfig,
    what: &str,
    records: usize,
    size: usize,
    at_once: usize,
) {
    let writer = Arc::new(KafkaWriter::open(config).unwrap());
    let meter = Meter::start(server);
    let mut tasks = tokio::task::JoinSet::new();
    for lane in 0..at_once {
        let writer = Arc::clone(&writer);
        tasks.spawn(async move {
            for round in 0..records / at_once / size {
                let mut batch = OutgoingBatch::default();
                for n in 0..size {
                    fill(&mut batch, Topic::Views, (round * at_once + lane) * size + n);
                }
                writer.append(batch).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    meter.stop(what, records / at_once / size * size * at_once);
}

async fn read(server: &KafkaServer, config: &KafkaConfig, what: &str, records: usize) {
    let mut reader = KafkaReader::open(config, Topic::Views, "reader").unwrap();
    let mut seen = 0;
    let mut batches = 0;
    let mut bytes = 0;
    let mut meter = None;
    while seen < records {
        match reader.next(WAIT).await.unwrap() {
            Some(GroupEvent::Assigned { partitions, .. }) => {
                meter = Some(Meter::start(server));
                for partition in partitions {
                    reader.start(partition, 0).await.unwrap();
                }
            }
            Some(GroupEvent::Records(batch)) => {
                seen += batch.len();
                batches += 1;
                bytes += batch.iter().map(|record| record.payload.map_or(0, <[u8]>::len)).sum::<usize>();
            }
            _ => {}
        }
    }
    meter.unwrap().stop(&format!("{what}, {} a batch, {} bytes", seen / batches, bytes / seen), seen);
    reader.close(WAIT).await;
}

/// 5,000 records a second through writer and reader, in batches of 10: what both cost when they are not at their limit,
/// and how long a record takes from one to the other.
async fn steady(server: &KafkaServer, config: &KafkaConfig, what: &str) {
    const BATCH: usize = 10;
    const ROUNDS: usize = 4_000;
    let writer = Arc::new(KafkaWriter::open(config).unwrap());
    let mut reader =
        KafkaReader::open(config, Topic::Views, &format!("steady-{}", config.fetch_min_bytes)).unwrap();
    let mut ends = 0;
    while ends < PARTITIONS {
        match reader.next(WAIT).await.unwrap() {
            Some(GroupEvent::Assigned { partitions, .. }) => {
                for partition in partitions {
                    let (_, end) = reader.bounds(partition).await.unwrap();
                    reader.start(partition, end).await.unwrap();
                }
            }
            Some(GroupEvent::CaughtUp { .. }) => ends += 1,
            _ => {}
        }
    }
    let meter = Meter::start(server);
    let begun = Instant::now();
    tokio::spawn(async move {
        let mut clock = tokio::time::interval(Duration::from_millis(2));
        for round in 0..ROUNDS {
            clock.tick().await;
            let mut batch = OutgoingBatch::default();
            for n in 0..BATCH {
                let key = format!("key-{}", round * BATCH + n);
                let sent = u64::try_from(begun.elapsed().as_micros()).unwrap().to_le_bytes();
                batch.push(Topic::Views, key.as_bytes(), &[&sent[..], &[7; 126]].concat());
            }
            let writer = Arc::clone(&writer);
            tokio::spawn(async move { writer.append(batch).await.unwrap() });
        }
    });
    let mut times = Vec::new();
    let mut batches = 0;
    while times.len() < ROUNDS * BATCH {
        if let Some(GroupEvent::Records(batch)) = reader.next(WAIT).await.unwrap() {
            batches += 1;
            let now = u64::try_from(begun.elapsed().as_micros()).unwrap();
            times.extend(batch.iter().map(|record| {
                let sent = record.payload.unwrap().first_chunk().unwrap();
                Duration::from_micros(now - u64::from_le_bytes(*sent))
            }));
        }
    }
    times.sort();
    let (median, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    let size = times.len() / batches;
    meter.stop(&format!("{what} ({size} a batch, {:.1} ms, p99 {:.1} ms)", ms(median), ms(p99)), times.len());
    reader.close(WAIT).await;
}

async fn transact(server: &KafkaServer, config: &KafkaConfig, what: &str, records: usize, size: usize) {
    let mut reader = KafkaReader::open(config, Topic::Views, "transactor").unwrap();
    let membership = loop {
        if let Some(GroupEvent::Assigned { membership, .. }) = reader.next(WAIT).await.unwrap() {
            break membership;
        }
    };
    let mut transactor = KafkaTransactor::open(config, Topic::Views).unwrap();
    transactor.commit(&OutgoingBatch::default(), &[], &membership).await.unwrap();
    let rounds = records / size;
    let mut times = Vec::new();
    let meter = Meter::start(server);
    for round in 0..rounds {
        let mut outputs = OutgoingBatch::default();
        for n in 0..size {
            fill(&mut outputs, Topic::Counted, round * size + n);
        }
        let positions = [Position { partition: 0, offset: (round * size) as i64, note: "A=1".into() }];
        let begun = Instant::now();
        transactor.commit(&outputs, &positions, &membership).await.unwrap();
        times.push(begun.elapsed());
    }
    times.sort();
    let (median, worst) = (times[rounds / 2], times[rounds - 1]);
    meter.stop(&format!("{what} ({:.1} ms, at most {:.1} ms)", ms(median), ms(worst)), rounds * size);
    reader.close(WAIT).await;
}

/// One record after the other: what an append takes when nothing else is going on.
async fn latency(config: &KafkaConfig) {
    let writer = KafkaWriter::open(config).unwrap();
    let mut times = Vec::new();
    for n in 0..500 {
        let mut batch = OutgoingBatch::default();
        fill(&mut batch, Topic::Views, n);
        let begun = Instant::now();
        writer.append(batch).await.unwrap();
        times.push(begun.elapsed());
    }
    times.sort();
    println!("append alone: median {:.2} ms, p99 {:.2} ms", ms(times[250]), ms(times[495]));
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

struct Meter {
    broker: u32,
    begun: Instant,
    ours_us: f64,
    brokers_us: f64,
}

impl Meter {
    fn start(server: &KafkaServer) -> Self {
        let broker = server.pid().unwrap();
        Self {
            broker,
            begun: Instant::now(),
            ours_us: cpu_us(std::process::id()),
            brokers_us: cpu_us(broker),
        }
    }

    fn stop(self, what: &str, records: usize) {
        let per = |us: f64| us / records as f64;
        println!(
            "{what}: {records} records, {:.0}/s, CPU {:.2} us ours + {:.2} us broker",
            records as f64 / self.begun.elapsed().as_secs_f64(),
            per(cpu_us(std::process::id()) - self.ours_us),
            per(cpu_us(self.broker) - self.brokers_us),
        );
    }
}

/// User and system time of a process so far.
fn cpu_us(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name in parentheses may hold anything; fields are counted from behind it.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    // SAFETY: asks for a constant.
    ticks * 1e6 / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64
}
