//! What a gzip bomb costs in memory. A process of its own, since it is the process's memory that is measured.
#![allow(clippy::unwrap_used, missing_docs)]

use flate2::Compression;
use flate2::write::GzEncoder;
use onlooker_collector::{CollectorConfig, IdentityConfig, SiteConfig, run};
use onlooker_ports::{LogWriter, OutgoingBatch, PortError, Secret};
use onlooker_stage::{Health, ShutdownTrigger};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tokio::net::TcpListener;

const MIB: usize = 1 << 20;
/// The collector's limit for one body.
const CAP: usize = 4 * MIB;
/// For all requests together.
const INFLIGHT: usize = 16 * MIB;

struct NoLog;

impl LogWriter for NoLog {
    async fn append(&self, _: OutgoingBatch) -> Result<(), PortError> {
        Ok(())
    }

    fn is_reachable(&self) -> bool {
        true
    }

    async fn flush(&self, _: Duration) -> Result<(), PortError> {
        Ok(())
    }
}

/// A gzip of so many bytes, without ever holding them.
fn gzip_of(byte: u8, bytes: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..bytes / MIB {
        encoder.write_all(&[byte; MIB]).unwrap();
    }
    encoder.finish().unwrap()
}

fn status_bytes(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.split_ascii_whitespace().next().unwrap().parse::<usize>().unwrap() * 1024
}

/// By how much the process grows at most while `work` runs.
fn growth(work: impl FnOnce()) -> usize {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status_bytes("VmRSS:");
    work();
    status_bytes("VmHWM:").saturating_sub(before)
}

fn send(address: SocketAddr, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /v1/views HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_bomb_costs_no_more_than_the_largest_body() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let config = CollectorConfig {
        max_body_bytes: CAP,
        max_inflight_bytes: INFLIGHT,
        identity: IdentityConfig { version: 1, secret: Secret::new("ab".repeat(32)) },
        sites: [("blog".to_owned(), SiteConfig::default())].into(),
        ..CollectorConfig::default()
    };
    let stop = ShutdownTrigger::default();
    runtime.spawn(run(config, NoLog, listener, Health::new(), stop.shutdown()));

    let bomb = gzip_of(0, 64 * MIB);
    assert!(bomb.len() < 100_000, "{}", bomb.len());
    assert!(send(address, br#"{"site":"blog","item":"/a"}"#).starts_with("HTTP/1.1 202"), "warm");
    let one = growth(|| {
        let answer = send(address, &bomb);
        assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("body_too_large"), "{answer}");
    });
    assert!(one < CAP + MIB, "one bomb took {one} bytes");

    // Text that is taken in whole, and then turns out to be a million views: their number is bounded too.
    let brackets = {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let text = format!("[{}{{}}]", "{},".repeat(CAP / 3 - 2));
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let many = growth(|| {
        let answer = send(address, &brackets);
        assert!(answer.contains("too_many_items"), "{answer}");
    });
    assert!(many < CAP + MIB, "a million views took {many} bytes");

    let all = growth(|| {
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    let answer = send(address, &bomb);
                    let refused = ["HTTP/1.1 413", "HTTP/1.1 503"].iter().any(|s| answer.starts_with(s));
                    assert!(refused, "{answer}");
                });
            }
        });
    });
    assert!(all < INFLIGHT + 8 * MIB, "forty bombs took {all} bytes");
}
