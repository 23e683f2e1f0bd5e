//! A collector on a socket, a log in memory, and a client that can send any bytes.

use onlooker_collector::{CollectorConfig, ConfigError, IdentityConfig, SiteConfig, run};
use onlooker_event::{Facts, View};
use onlooker_ports::{LogWriter, OutgoingBatch, PortError, Secret, Topic};
use onlooker_proto::decode_view;
use onlooker_stage::telemetry::MetricsHandle;
use onlooker_stage::{Health, ShutdownTrigger};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

pub(crate) const LONG: Duration = Duration::from_secs(20);
pub(crate) const TOKEN: &str = "blog-token-0123456789";

/// What the log does with an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Take,
    Full,
    Away,
    /// Takes it, and acknowledges it when the test releases it.
    Wait,
}

#[derive(Debug)]
struct LogState {
    mode: Mutex<Mode>,
    records: Mutex<Vec<(Vec<u8>, View)>>,
    traces: Mutex<Vec<Option<String>>>,
    acks: Semaphore,
    waiting: Semaphore,
    flushed: Semaphore,
}

#[derive(Debug, Clone)]
pub(crate) struct TestLog(Arc<LogState>);

impl TestLog {
    fn new() -> Self {
        Self(Arc::new(LogState {
            mode: Mutex::new(Mode::Take),
            records: Mutex::default(),
            traces: Mutex::default(),
            acks: Semaphore::new(0),
            waiting: Semaphore::new(0),
            flushed: Semaphore::new(0),
        }))
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.0.mode.lock().unwrap() = mode;
    }

    fn mode(&self) -> Mode {
        *self.0.mode.lock().unwrap()
    }

    /// All records so far, which are taken out.
    pub(crate) fn take(&self) -> Vec<View> {
        self.take_keyed().into_iter().map(|(_, view)| view).collect()
    }

    /// The same with their keys.
    pub(crate) fn take_keyed(&self) -> Vec<(Vec<u8>, View)> {
        std::mem::take(&mut self.0.records.lock().unwrap())
    }

    /// Each record's trace since the last look.
    pub(crate) fn traces(&self) -> Vec<Option<String>> {
        std::mem::take(&mut self.0.traces.lock().unwrap())
    }

    /// The only record since the last look.
    pub(crate) fn one(&self) -> View {
        let mut views = self.take();
        assert_eq!(views.len(), 1, "{views:?}");
        views.remove(0)
    }

    /// Waits until this many more appends wait for their acknowledgement.
    pub(crate) async fn until_waiting(&self, appends: u32) {
        within(self.0.waiting.acquire_many(appends)).await.unwrap().forget();
    }

    /// Acknowledges this many appends.
    pub(crate) fn acknowledge(&self, appends: usize) {
        self.0.acks.add_permits(appends);
    }

    pub(crate) fn flushes(&self) -> usize {
        self.0.flushed.available_permits()
    }
}

impl LogWriter for TestLog {
    async fn append(&self, batch: OutgoingBatch) -> Result<(), PortError> {
        let detail = || "the test says so".to_owned();
        match self.mode() {
            Mode::Full => return Err(PortError::Full { server: "log", detail: detail() }),
            Mode::Away => return Err(PortError::Unavailable { server: "log", detail: detail() }),
            Mode::Take | Mode::Wait => {}
        }
        {
            let mut records = self.0.records.lock().unwrap();
            for record in batch.iter() {
                assert_eq!(record.topic, Topic::Views);
                let trace = record.trace.map(ToString::to_string);
                self.0.traces.lock().unwrap().push(trace);
                records.push((record.key.to_vec(), decode_view(Some(record.payload)).unwrap()));
            }
        }
        if self.mode() == Mode::Wait {
            self.0.waiting.add_permits(1);
            self.0.acks.acquire().await.unwrap().forget();
        }
        Ok(())
    }

    fn is_reachable(&self) -> bool {
        self.mode() != Mode::Away
    }

    async fn flush(&self, _: Duration) -> Result<(), PortError> {
        self.0.flushed.add_permits(1);
        Ok(())
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) log: TestLog,
    pub(crate) trigger: ShutdownTrigger,
    pub(crate) health: Health,
    pub(crate) metrics: MetricsHandle,
    pub(crate) task: JoinHandle<Result<(), ConfigError>>,
}

pub(crate) fn site() -> SiteConfig {
    SiteConfig { token: Some(Secret::new(TOKEN)), ..SiteConfig::default() }
}

pub(crate) fn config() -> CollectorConfig {
    let shop = SiteConfig {
        key: Some("pk-shop".into()),
        origins: vec!["https://shop.example.com".into()],
        token: Some(Secret::new("shop-token-0123456789")),
        ..SiteConfig::default()
    };
    CollectorConfig {
        identity: IdentityConfig { version: 7, secret: Secret::new("ab".repeat(32)) },
        sites: [("blog".to_owned(), site()), ("shop".to_owned(), shop)].into(),
        ..CollectorConfig::default()
    }
}

pub(crate) async fn start(config: CollectorConfig) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (log, trigger, health) = (TestLog::new(), ShutdownTrigger::default(), Health::new());
    let metrics = MetricsHandle::detached().unwrap();
    let room = metrics.within(|| run(config, log.clone(), listener, health.clone(), trigger.shutdown()));
    Server { address, log, trigger, health, metrics, task: tokio::spawn(room) }
}

impl Server {
    pub(crate) async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap())
    }

    /// One request on a connection of its own.
    pub(crate) async fn send(&self, request: Request) -> Answer {
        let mut client = self.connect().await;
        client.write(&request.bytes()).await;
        client.answer().await
    }

    pub(crate) async fn post(&self, body: &str) -> Answer {
        self.send(post(body)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Request::new("GET", path)).await
    }

    pub(crate) fn metric(&self, line_start: &str) -> f64 {
        let page = self.metrics.render();
        let line = page.lines().find_map(|l| l.strip_prefix(line_start)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{line_start} is missing in\n{page}")).parse().unwrap()
    }

    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Server) -> bool) {
        let deadline = Instant::now() + LONG;
        while !condition(self) {
            assert!(Instant::now() < deadline, "waited in vain for {what}:\n{}", self.metrics.render());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("took too long")
}

/// A request, byte for byte.
pub(crate) struct Request {
    head: Vec<u8>,
    body: Vec<u8>,
    chunked: bool,
}

pub(crate) fn post(body: impl AsRef<[u8]>) -> Request {
    let mut request = Request::new("POST", "/v1/views");
    request.body = body.as_ref().to_vec();
    request
}

/// A post of the blog's back end.
pub(crate) fn trusted(body: impl AsRef<[u8]>) -> Request {
    post(body).header("Authorization", format!("Bearer {TOKEN}"))
}

impl Request {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: views.example.com\r\n").into_bytes();
        Self { head, body: Vec::new(), chunked: false }
    }

    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.head.extend_from_slice(name.as_bytes());
        self.head.extend_from_slice(b": ");
        self.head.extend_from_slice(value.as_ref());
        self.head.extend_from_slice(b"\r\n");
        self
    }

    /// Without a Content-Length, in two chunks.
    pub(crate) fn chunked(mut self) -> Self {
        self.chunked = true;
        self
    }

    pub(crate) fn bytes(mut self) -> Vec<u8> {
        if !self.chunked {
            let length = self.body.len().to_string();
            self = self.header("Content-Length", length);
            return [self.head, b"\r\n".to_vec(), self.body].concat();
        }
        let mut bytes = self.header("Transfer-Encoding", "chunked");
        bytes.head.extend_from_slice(b"\r\n");
        for chunk in bytes.body.chunks(bytes.body.len().div_ceil(2).max(1)) {
            bytes.head.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            bytes.head.extend_from_slice(chunk);
            bytes.head.extend_from_slice(b"\r\n");
        }
        bytes.head.extend_from_slice(b"0\r\n\r\n");
        bytes.head
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The code of the answer's one error.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_else(|| panic!("no error: {self:?}")).to_owned()
    }

    /// Each view's outcome: "accepted", or its error's code.
    pub(crate) fn outcomes(&self) -> Vec<String> {
        let json = self.json();
        let results = json["results"].as_array().unwrap_or_else(|| panic!("no results: {self:?}"));
        let outcomes: Vec<_> = results
            .iter()
            .map(|r| r["error"]["code"].as_str().or(r["status"].as_str()).unwrap().to_owned())
            .collect();
        let accepted = outcomes.iter().filter(|o| *o == "accepted").count();
        assert_eq!(json["accepted"], accepted, "{self:?}");
        assert_eq!(json["rejected"], outcomes.len() - accepted, "{self:?}");
        outcomes
    }

    /// Panics with the whole answer unless it was this status.
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{} {}", self.head, String::from_utf8_lossy(&self.body));
        self
    }
}

pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(within(self.0.read_u8()).await.unwrap());
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let mut answer = Answer { status: head[9..12].parse().unwrap(), head, body: Vec::new() };
        let length = answer.header("content-length").map_or(0, |l| l.parse().unwrap());
        answer.body.resize(length, 0);
        within(self.0.read_exact(&mut answer.body)).await.unwrap();
        answer
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        Self(stream)
    }

    /// One request and its answer; none if the server has closed the connection.
    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> Option<Answer> {
        self.0.write_all(bytes).await.ok()?;
        let mut first = [0];
        within(self.0.peek(&mut first)).await.ok().filter(|read| *read > 0)?;
        Some(self.answer().await)
    }

    /// What is left until the server closes the connection.
    pub(crate) async fn rest(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        within(self.0.read_to_end(&mut bytes)).await.unwrap();
        bytes
    }
}

/// The facts of a view that an ordinary page sends.
pub(crate) const NOTHING: Facts = Facts(0);
