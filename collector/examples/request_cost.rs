//! What a request costs: the CPU time of the collector against that of an axum server which answers 202 to anything.
//!
//! ```text
//! cargo run --release -p onlooker-collector --example request_cost [ROUNDS]
//! request_cost serve bare|collector|collector+acks    one of the servers alone, to look into it
//! request_cost load ADDRESS VIEWS_A_REQUEST REQUESTS  the load alone
//! ```
//! Each server is a process of its own, under the same load; only its CPU time is counted. The collector appends to a
//! log that acknowledges at once, or, as `+acks`, every 2 ms from a thread of its own, as a client library does.
#![allow(clippy::unwrap_used, missing_docs)]

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use bytes::Bytes;
use onlooker_collector::{CollectorConfig, IdentityConfig, SiteConfig, run};
use onlooker_ports::{LogWriter, OutgoingBatch, PortError, Secret};
use onlooker_stage::{Health, ShutdownTrigger};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Requests on their way at once, two client threads together.
const CONNECTIONS: usize = 256;
/// All servers get the same rate: one that is never idle finds its caches warm and costs half as much a request.
const REQUESTS_A_SECOND: f64 = 20_000.0;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("serve") => serve(&args[2]),
        Some("load") => {
            load(args[2].parse().unwrap(), &requests(args[3].parse().unwrap()), args[4].parse().unwrap())
        }
        rounds => compare(rounds.and_then(|r| r.parse().ok()).unwrap_or(5)),
    }
}

#[tokio::main]
async fn serve(kind: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    if kind == "bare" {
        let router = Router::new().route("/v1/views", post(async |_: Bytes| StatusCode::ACCEPTED));
        axum::serve(listener, router).await.unwrap();
        return;
    }
    let config = CollectorConfig {
        identity: IdentityConfig { version: 1, secret: Secret::new("00".repeat(32)) },
        sites: [(
            "blog".to_owned(),
            SiteConfig { token: Some(Secret::new("0123456789abcdef")), ..SiteConfig::default() },
        )]
        .into(),
        ..CollectorConfig::default()
    };
    let trigger = ShutdownTrigger::default();
    let log = Acks::start(kind == "collector+acks");
    run(config, log, listener, Health::new(), trigger.shutdown()).await.unwrap();
}

/// Forgets what it is given. Acknowledges at once, or every 2 ms.
struct Acks(Option<Arc<Mutex<Vec<oneshot::Sender<()>>>>>);

impl Acks {
    fn start(later: bool) -> Self {
        if !later {
            return Self(None);
        }
        let waiting: Arc<Mutex<Vec<oneshot::Sender<()>>>> = Arc::default();
        let queue = Arc::clone(&waiting);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(2));
                let ready = std::mem::take(&mut *queue.lock().unwrap());
                ready.into_iter().for_each(|ack| ack.send(()).unwrap());
            }
        });
        Self(Some(waiting))
    }
}

impl LogWriter for Acks {
    async fn append(&self, batch: OutgoingBatch) -> Result<(), PortError> {
        std::hint::black_box(&batch);
        if let Some(waiting) = &self.0 {
            let (ack, acked) = oneshot::channel();
            waiting.lock().unwrap().push(ack);
            acked.await.unwrap();
        }
        Ok(())
    }

    fn is_reachable(&self) -> bool {
        true
    }

    async fn flush(&self, _: Duration) -> Result<(), PortError> {
        Ok(())
    }
}

struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(kind: &str) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut child = Command::new(program).args(["serve", kind]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, address: line.trim().parse().unwrap() }
    }

    /// User and system time so far, in microseconds.
    fn cpu_us(&self) -> f64 {
        let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
        let pid = i32::try_from(self.child.id()).unwrap();
        // SAFETY: both calls write to variables that live.
        unsafe {
            assert_eq!(libc::clock_getcpuclockid(pid, &mut clock), 0);
            assert_eq!(libc::clock_gettime(clock, &mut time), 0);
        }
        time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn view(i: usize, trusted: bool) -> String {
    let viewer = if trusted { format!(r#","viewer":"user-{}""#, i % 3000) } else { String::new() };
    let id = format!("01939d4e-7a30-7c1e-9f5b-{i:012}");
    format!(
        r#"{{"site":"blog","item":"/articles/{}/how-a-view-is-counted","id":"{id}"{viewer},"referrer":"https://www.example.com/"}}"#,
        i % 1000
    )
}

fn requests(batch: usize) -> Vec<Vec<u8>> {
    let body = |i: usize| match batch {
        1 => view(i, false),
        n => format!("[{}]", (0..n).map(|k| view(i * n + k, true)).collect::<Vec<_>>().join(",")),
    };
    let token = if batch > 1 { "authorization: Bearer 0123456789abcdef\r\n" } else { "" };
    (0..200)
        .map(|i| {
            let body = body(i);
            format!(
                "POST /v1/views HTTP/1.1\r\nhost: views.example.com\r\nuser-agent: Mozilla/5.0 (X11; Linux x86_64; \
                 rv:128.0) Gecko/20100101 Firefox/128.0\r\naccept: */*\r\norigin: https://blog.example.com\r\n\
                 {token}content-type: text/plain;charset=UTF-8\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
            .into_bytes()
        })
        .collect()
}

/// Sends `count` requests, one a connection in each round.
fn load(address: SocketAddr, requests: &[Vec<u8>], count: usize) {
    let threads = 2;
    std::thread::scope(|scope| {
        for t in 0..threads {
            scope.spawn(move || {
                let mut connections: Vec<TcpStream> =
                    (0..CONNECTIONS / threads).map(|_| TcpStream::connect(address).unwrap()).collect();
                let mut buffer = vec![0; 64 << 10];
                let round = Duration::from_secs_f64(CONNECTIONS as f64 / REQUESTS_A_SECOND);
                let start = Instant::now();
                for i in 0..count / CONNECTIONS {
                    let due = start + round * u32::try_from(i).unwrap();
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    for (k, connection) in connections.iter_mut().enumerate() {
                        connection.write_all(&requests[(t + i * 7 + k) % requests.len()]).unwrap();
                    }
                    connections.iter_mut().for_each(|c| answer(c, &mut buffer));
                }
            });
        }
    });
}

fn answer(connection: &mut TcpStream, buffer: &mut [u8]) {
    let mut read = 0;
    loop {
        let n = connection.read(&mut buffer[read..]).unwrap();
        assert!(n > 0, "the server closed a connection");
        read += n;
        let text = &buffer[..read];
        let Some(end) = text.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
        let head = std::str::from_utf8(&text[..end]).unwrap();
        assert!(head.starts_with("HTTP/1.1 202"), "{}", String::from_utf8_lossy(text));
        let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")).unwrap();
        if read >= end + 4 + length.parse::<usize>().unwrap() {
            return;
        }
    }
}

fn compare(rounds: usize) {
    println!(
        "| server | views a request | CPU µs a request (min / median / max) | µs a view |\n|---|---|---|---|"
    );
    for (batch, count) in [(1, 64_000), (100, 6_400)] {
        let requests = requests(batch);
        let kinds = ["bare", "collector", "collector+acks"];
        let mut costs = kinds.map(|_| Vec::new());
        for _ in 0..rounds {
            for (kind, costs) in kinds.iter().zip(&mut costs) {
                let server = Server::start(kind);
                load(server.address, &requests, count / 8);
                let before = server.cpu_us();
                load(server.address, &requests, count);
                costs.push((server.cpu_us() - before) / count as f64);
            }
        }
        for (kind, costs) in kinds.iter().zip(&mut costs) {
            costs.sort_by(f64::total_cmp);
            let (min, mid, max) = (costs[0], costs[costs.len() / 2], costs[costs.len() - 1]);
            println!("| {kind} | {batch} | {min:.2} / {mid:.2} / {max:.2} | {:.2} |", mid / batch as f64);
        }
    }
}
