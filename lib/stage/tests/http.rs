//! The server seen from the wire: every test speaks HTTP as text over a real socket.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::{get, post};
use onlooker_stage::http::{Drained, HttpConfig, read_body, serve, with_fallbacks};
use onlooker_stage::shutdown::{ShutdownTrigger, channel};
use onlooker_stage::telemetry::MetricsHandle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(150);

struct Server {
    address: SocketAddr,
    trigger: ShutdownTrigger,
    task: JoinHandle<Drained>,
    metrics: MetricsHandle,
    /// Requests that have reached `/wait`.
    arrived: Arc<Semaphore>,
    /// One permit lets one of them go.
    release: Arc<Semaphore>,
}

fn config() -> HttpConfig {
    HttpConfig {
        header_timeout: LONG,
        idle_timeout: LONG,
        write_timeout: LONG,
        drain_deadline: LONG,
        ..HttpConfig::named("test")
    }
}

async fn start(config: HttpConfig) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (arrived, release) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let wait = {
        let (arrived, release) = (Arc::clone(&arrived), Arc::clone(&release));
        async move || {
            arrived.add_permits(1);
            release.acquire().await.unwrap().forget();
            "waited"
        }
    };
    let router = Router::new()
        .route("/", get(async || "hello"))
        .route("/peer", get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string()))
        .route("/wait", get(wait))
        .route("/big", get(async || vec![b'x'; 64 << 20]))
        .route("/panic", get(async || -> &'static str { panic!("a handler's panic") }))
        .route("/body", post(async |body: Body| read_body(body, 1000, LONG).await));
    let (trigger, shutdown) = channel();
    let metrics = MetricsHandle::detached().unwrap();
    let server = metrics.within(|| serve(listener, with_fallbacks(router), config, shutdown));
    Server { address, trigger, task: tokio::spawn(server), metrics, arrived, release }
}

impl Server {
    async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap())
    }

    async fn get(&self, path: &str) -> (u16, String, String) {
        let mut client = self.connect().await;
        client.request(path).await;
        client.response().await
    }

    async fn drained(self) -> Drained {
        self.trigger.request();
        within(self.task).await.unwrap()
    }

    async fn until_page_has(&self, line: &str) {
        let deadline = Instant::now() + LONG;
        while !self.metrics.render().lines().any(|other| other == line) {
            assert!(Instant::now() < deadline, "{line:?} never came:\n{}", self.metrics.render());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("took too long")
}

struct Client(TcpStream);

impl Client {
    async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    async fn request(&mut self, path: &str) {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n")).await;
    }

    /// Status, lower-case headers, body.
    async fn response(&mut self) -> (u16, String, String) {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            bytes.push(within(self.0.read_u8()).await.unwrap());
        }
        let head = String::from_utf8(bytes).unwrap().to_lowercase();
        let length =
            head.split("content-length: ").nth(1).map_or("0", |rest| rest.split("\r\n").next().unwrap());
        let mut body = vec![0; length.parse().unwrap()];
        within(self.0.read_exact(&mut body)).await.unwrap();
        (head[9..12].parse().unwrap(), head, String::from_utf8(body).unwrap())
    }

    /// Waits for the server's close, cleanly or by reset, and says whether it was clean.
    async fn closed(&mut self) -> bool {
        match within(self.0.read_u8()).await {
            Ok(byte) => panic!("byte {byte} instead of the end"),
            Err(error) => error.kind() == std::io::ErrorKind::UnexpectedEof,
        }
    }
}

#[tokio::test]
async fn one_connection_carries_many_requests_and_names_its_peer() {
    let server = start(config()).await;
    let mut client = server.connect().await;
    let own = client.0.local_addr().unwrap().to_string();
    for _ in 0..3 {
        client.request("/peer").await;
        assert_eq!(client.response().await.2, own);
    }
    // Pipelined: the second request's first bytes are read with the first's.
    client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\nGET /peer HTTP/1.1\r\nhost: test\r\n").await;
    assert_eq!(client.response().await.2, "hello");
    client.send("\r\n").await;
    assert_eq!(client.response().await.2, own);
    server.until_page_has("onlooker_http_accepted_connections_total{server=\"test\"} 1").await;
    server.until_page_has("onlooker_http_responses_total{server=\"test\",status=\"200\"} 5").await;
    server.until_page_has("onlooker_http_request_seconds_count{server=\"test\"} 5").await;
    server.until_page_has("onlooker_http_connections{server=\"test\"} 1").await;
}

#[tokio::test]
async fn errors_have_a_body() {
    let server = start(config()).await;
    let (status, _, body) = server.get("/nowhere").await;
    assert_eq!((status, body.contains("\"code\":\"not_found\"")), (404, true), "{body}");
    let (status, head, body) = server.get("/body").await;
    assert_eq!((status, body.contains("\"code\":\"method_not_allowed\"")), (405, true), "{body}");
    assert!(head.contains("allow: post\r\n"), "{head}");

    let mut client = server.connect().await;
    client.request("/panic").await;
    let (status, _, body) = client.response().await;
    assert_eq!((status, body.contains("\"code\":\"internal\"")), (500, true), "{body}");
    assert!(!body.contains("panic"), "{body}");
    client.request("/").await;
    assert_eq!(client.response().await.0, 200, "the connection survives a panic");
    server.until_page_has("onlooker_http_panics_total{server=\"test\"} 1").await;

    let mut client = server.connect().await;
    client.send("this is not HTTP\r\n\r\n").await;
    assert_eq!(client.response().await.0, 400);
    assert!(client.closed().await);

    let mut client = server.connect().await;
    client.send(&format!("GET / HTTP/1.1\r\nhost: test\r\ncookie: {}\r\n\r\n", "x".repeat(20_000))).await;
    assert_eq!(client.response().await.0, 431);
    assert!(client.closed().await);
}

#[tokio::test]
async fn a_client_in_the_middle_of_a_large_body_sees_its_413() {
    let server = start(config()).await;
    let mut client = server.connect().await;
    client.send("POST /body HTTP/1.1\r\nhost: test\r\ncontent-length: 8000000\r\n\r\n").await;
    // By now the answer is out, and all of this comes too late; it must not turn into a reset.
    server.until_page_has("onlooker_http_responses_total{server=\"test\",status=\"413\"} 1").await;
    for _ in 0..8 {
        client.send(&"x".repeat(1_000_000)).await;
    }
    let (status, _, body) = client.response().await;
    assert_eq!(status, 413);
    assert!(body.contains("\"limit\":1000,\"got\":8000000"), "{body}");
    assert!(client.closed().await);
}

#[tokio::test]
async fn the_drain_finishes_what_has_begun_and_closes_the_rest() {
    let server = start(config()).await;
    let (mut busy, mut idle, fresh) =
        (server.connect().await, server.connect().await, server.connect().await);
    idle.request("/").await;
    idle.response().await;
    busy.request("/wait").await;
    within(server.arrived.acquire()).await.unwrap().forget();

    server.trigger.request();
    assert!(idle.closed().await);
    assert!(!server.task.is_finished());
    // Accepted before the drain, its first request was still on its way.
    let mut fresh = fresh;
    fresh.request("/").await;
    let (status, head, _) = fresh.response().await;
    assert_eq!((status, head.contains("connection: close\r\n")), (200, true), "{head}");
    assert!(TcpStream::connect(server.address).await.is_err(), "the listener is still open");

    server.release.add_permits(1);
    let (status, head, body) = busy.response().await;
    assert_eq!((status, body.as_str()), (200, "waited"));
    assert!(head.contains("connection: close\r\n"), "{head}");
    assert!(busy.closed().await && fresh.closed().await);
    drop((busy, fresh));
    assert_eq!(server.drained().await, Drained { aborted: 0 });
}

#[tokio::test]
async fn a_connection_in_the_backlog_is_served() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = Client(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
    client.request("/").await;
    let (trigger, shutdown) = channel();
    trigger.request();
    let router = Router::new().route("/", get(async || "hello"));
    let server = tokio::spawn(serve(listener, router, config(), shutdown));
    assert_eq!(client.response().await.2, "hello");
    drop(client);
    assert_eq!(within(server).await.unwrap(), Drained { aborted: 0 });
}

#[tokio::test]
async fn a_connection_that_never_says_anything_does_not_hold_up_the_drain() {
    let server = start(config()).await;
    let mut silent = server.connect().await;
    server.until_page_has("onlooker_http_connections{server=\"test\"} 1").await;
    let start = Instant::now();
    assert_eq!(server.drained().await, Drained { aborted: 0 });
    assert!(start.elapsed() < LONG / 2, "{:?}", start.elapsed());
    assert!(silent.closed().await);
}

#[tokio::test]
async fn a_lame_duck_serves_new_connections() {
    let server = start(HttpConfig { lame_duck: SHORT, ..config() }).await;
    server.trigger.request();
    let (status, head, _) = server.get("/").await;
    assert_eq!((status, head.contains("connection: close")), (200, false), "{head}");
    assert_eq!(server.drained().await, Drained { aborted: 0 });
}

#[tokio::test]
async fn the_drains_deadline_cuts_what_hangs() {
    let server = start(HttpConfig { drain_deadline: SHORT, ..config() }).await;
    let mut hanging = server.connect().await;
    hanging.request("/wait").await;
    within(server.arrived.acquire()).await.unwrap().forget();
    let metrics = server.metrics.clone();
    assert_eq!(server.drained().await, Drained { aborted: 1 });
    hanging.closed().await;
    let line = "onlooker_http_cut_connections_total{server=\"test\",reason=\"drain\"} 1";
    assert!(metrics.render().contains(line), "{}", metrics.render());
}

#[tokio::test]
async fn dropping_the_server_cuts_everything() {
    let server = start(config()).await;
    let mut client = server.connect().await;
    client.request("/wait").await;
    within(server.arrived.acquire()).await.unwrap().forget();
    server.task.abort();
    client.closed().await;
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn slow_clients_are_cut() {
    let cut =
        |reason| format!("onlooker_http_cut_connections_total{{server=\"test\",reason=\"{reason}\"}} 1");

    let server = start(HttpConfig { header_timeout: SHORT, ..config() }).await;
    let start_of_test = Instant::now();
    let (mut silent, mut slow) = (server.connect().await, server.connect().await);
    slow.send("GET / HTTP/1.1\r\n").await;
    assert!(silent.closed().await && slow.closed().await);
    assert!(start_of_test.elapsed() >= SHORT);
    server.until_page_has(&cut("idle")).await;
    server.until_page_has(&cut("slow_request")).await;

    let server = start(HttpConfig { idle_timeout: SHORT, ..config() }).await;
    let mut client = server.connect().await;
    // A request is neither idle nor slow, however long its handler takes: here, longer than a
    // connection that began to idle after it.
    client.request("/wait").await;
    within(server.arrived.acquire()).await.unwrap().forget();
    let mut other = server.connect().await;
    other.request("/").await;
    assert_eq!(other.response().await.0, 200);
    assert!(other.closed().await);
    server.release.add_permits(1);
    assert_eq!(client.response().await.0, 200);
    let start_of_idleness = Instant::now();
    assert!(client.closed().await);
    assert!(start_of_idleness.elapsed() >= SHORT / 2, "{:?}", start_of_idleness.elapsed());
    server.until_page_has(&cut("idle").replace("} 1", "} 2")).await;

    let server = start(HttpConfig { write_timeout: SHORT, ..config() }).await;
    let mut client = server.connect().await;
    client.request("/big").await;
    server.until_page_has(&cut("slow_reader")).await;
}

#[tokio::test]
async fn a_head_in_pieces_has_its_own_time_after_an_idle_one() {
    let server = start(HttpConfig { header_timeout: SHORT, ..config() }).await;
    let mut client = server.connect().await;
    client.request("/").await;
    client.response().await;
    // Idle is allowed for longer than a head may take, here for as long as it takes to cut a head
    // that starts now; and a head starts with its first byte.
    let mut slow = server.connect().await;
    slow.send("GET / HTT").await;
    assert!(slow.closed().await);
    client.send("GET / HTT").await;
    client.send("P/1.1\r\nhost: test\r\n\r\n").await;
    assert_eq!(client.response().await.0, 200);
    client.send("GET / HTT").await;
    assert!(client.closed().await);
}

#[tokio::test]
async fn idle_connections_make_room_at_the_limit() {
    let server = start(HttpConfig { max_connections: 2, ..config() }).await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    for client in [&mut first, &mut second] {
        client.request("/").await;
        client.response().await;
    }
    assert_eq!(server.get("/").await.0, 200);
    assert!(first.closed().await, "the one that is open longest makes room");
    server.until_page_has("onlooker_http_shed_connections_total{server=\"test\"} 1").await;
    second.request("/").await;
    assert_eq!(second.response().await.0, 200);
}

#[tokio::test]
async fn busy_connections_at_the_limit_close_after_their_response() {
    let server = start(HttpConfig { max_connections: 1, ..config() }).await;
    let mut busy = server.connect().await;
    busy.request("/wait").await;
    within(server.arrived.acquire()).await.unwrap().forget();
    // One above the limit is served while it waits for the other's place; the next has to queue.
    assert_eq!(server.get("/").await.0, 200);
    let mut queued = server.connect().await;
    queued.request("/").await;
    server.release.add_permits(1);
    let (status, head, _) = busy.response().await;
    assert_eq!((status, head.contains("connection: close\r\n")), (200, true), "{head}");
    assert_eq!(queued.response().await.0, 200);
}

/// Requests of many clients while the drain begins: whoever was handled gets the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_loses_no_answer_to_the_drain() {
    for _ in 0..5 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (trigger, shutdown) = channel();
        let handled = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&handled);
        let handler = async move || {
            // The drain begins in the middle of a request.
            if count.fetch_add(1, Ordering::Relaxed) == 2000 {
                trigger.request();
            }
            tokio::task::yield_now().await;
            "hello"
        };
        let router = Router::new().route("/", get(handler));
        let server = tokio::spawn(serve(listener, router, config(), shutdown));
        let clients: Vec<_> = (0..16).map(|_| tokio::spawn(ask_until_refused(address))).collect();
        let mut answers = 0;
        for client in clients {
            answers += within(client).await.unwrap();
        }
        assert_eq!(within(server).await.unwrap(), Drained { aborted: 0 });
        assert_eq!(answers, handled.load(Ordering::Relaxed));
    }
}

/// Counts whole answers, on as many connections as it takes.
async fn ask_until_refused(address: SocketAddr) -> usize {
    let mut answers = 0;
    while let Ok(mut stream) = TcpStream::connect(address).await {
        loop {
            let mut answer = Vec::new();
            let sent = stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await;
            while !answer.ends_with(b"hello") && stream.read_buf(&mut answer).await.is_ok_and(|read| read > 0)
            {
            }
            if sent.is_err() || !answer.ends_with(b"hello") {
                assert!(answer.is_empty(), "half an answer: {:?}", String::from_utf8_lossy(&answer));
                break;
            }
            answers += 1;
            if String::from_utf8_lossy(&answer).contains("connection: close") {
                break;
            }
        }
    }
    answers
}
