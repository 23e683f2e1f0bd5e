//! One connection to one Redis or Redis Cluster: made when needed, shared by all, replaced when it fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use onlooker_ports::PortError;
use redis::aio::MultiplexedConnection;
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{
    AsyncConnectionConfig, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo, Pipeline, RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, Value,
};
use tokio::sync::Mutex;
use tracing::{debug, info, warn};

use crate::config::{RedisConfig, TlsConfig, split_node};
use crate::error::{Blame, blame, port_error};
use crate::script::Script;

/// After a failed attempt to connect, callers get the same error for this long and the server its peace.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// So many commands in a row to one slot without an answer, and the connection is made anew. A cluster client would
/// otherwise wait for a stopped master for ever although its replica has long taken over.
const TIMEOUTS_UNTIL_RENEWAL: u32 = 3;

/// Time-outs in a row, by slot: the other masters of a cluster answer all the while.
#[derive(Default)]
struct Silence {
    any: AtomicBool,
    slots: std::sync::Mutex<Vec<(u16, u32)>>,
}

impl Silence {
    fn slots(&self) -> std::sync::MutexGuard<'_, Vec<(u16, u32)>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered(&self, slot: u16) {
        if self.any.load(Ordering::Relaxed) {
            let mut slots = self.slots();
            slots.retain(|(silent, _)| *silent != slot);
            self.any.store(!slots.is_empty(), Ordering::Relaxed);
        }
    }

    /// Counts a time-out; true if it is time to give the connection up.
    fn timed_out(&self, slot: u16) -> bool {
        let mut slots = self.slots();
        self.any.store(true, Ordering::Relaxed);
        match slots.iter_mut().find(|(silent, _)| *silent == slot) {
            Some((_, count)) => {
                *count += 1;
                *count >= TIMEOUTS_UNTIL_RENEWAL
            }
            None => {
                slots.push((slot, 1));
                false
            }
        }
    }

    fn forget(&self) {
        self.slots().clear();
        self.any.store(false, Ordering::Relaxed);
    }
}

/// Which of the two servers a client talks to; names it in errors and logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The filter's memory.
    Dedup,
    /// Sketches and numbers.
    Counters,
}

impl Role {
    /// As errors and logs call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Dedup => "dedup redis",
            Role::Counters => "counters redis",
        }
    }
}

#[derive(Clone)]
enum Link {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

enum Target {
    One(redis::Client, AsyncConnectionConfig),
    Cluster(Box<ClusterClient>),
}

#[derive(Default)]
struct State {
    link: Option<Link>,
    /// Counts connections, so that two callers who saw the same one fail do not throw away two.
    generation: u64,
    failure: Option<(Instant, RedisError)>,
}

struct Inner {
    server: &'static str,
    prefix: Box<str>,
    target: Target,
    connect_timeout: Duration,
    tls: bool,
    silence: Silence,
    state: Mutex<State>,
}

/// A connection that is made with the first command, shared by all clones, and replaced when it fails.
///
/// A command whose connection breaks is sent once more: every command that this crate sends may be repeated. A
/// command without an answer in time is not, and says nothing about whether it was carried out.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("server", &self.0.server).finish_non_exhaustive()
    }
}

/// What is sent in one go.
#[derive(Clone, Copy)]
enum Request<'a> {
    Command(&'a Cmd),
    /// All or nothing, answered by what `EXEC` answers.
    Transaction(&'a Pipeline),
    /// One answer each, errors among them.
    Pipeline(&'a Pipeline),
}

impl Client {
    /// A client that is not connected yet.
    ///
    /// # Errors
    /// `Misconfigured`: the settings are wrong in themselves, or a certificate file cannot be used.
    pub fn new(role: Role, config: &RedisConfig) -> Result<Self, PortError> {
        let server = role.as_str();
        let misconfigured = |detail: String| PortError::Misconfigured { server, detail };
        config.validate().map_err(|error| misconfigured(error.to_string()))?;
        let target = target(config).map_err(misconfigured)?;
        Ok(Self(Arc::new(Inner {
            server,
            prefix: config.prefix.as_str().into(),
            target,
            connect_timeout: config.connect_timeout(),
            tls: config.tls.is_some(),
            silence: Silence::default(),
            state: Mutex::default(),
        })))
    }

    pub(crate) fn server(&self) -> &'static str {
        self.0.server
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.0.prefix
    }

    /// Sends one command to the master of a slot.
    pub(crate) async fn command(&self, slot: u16, command: &Cmd) -> Result<Value, PortError> {
        let mut values = self.run(slot, Request::Command(command)).await.map_err(|e| self.error(&e))?;
        self.checked(values.pop().unwrap_or_default())
    }

    /// Sends commands as one transaction; each answer stands at its command's place. An error among them fails all.
    pub(crate) async fn transaction(&self, slot: u16, commands: &Pipeline) -> Result<Vec<Value>, PortError> {
        let mut values = self.run(slot, Request::Transaction(commands)).await.map_err(|e| self.error(&e))?;
        match values.pop() {
            Some(Value::Array(answers)) if answers.len() == commands.len() => {
                answers.into_iter().map(|answer| self.checked(answer)).collect()
            }
            other => Err(crate::error::unexpected(self.server(), "EXEC", &other.unwrap_or_default())),
        }
    }

    /// Sends commands one behind the other; errors stay at their command's place.
    pub(crate) async fn pipeline(&self, slot: u16, commands: &Pipeline) -> Result<Vec<Value>, PortError> {
        let values = self.run(slot, Request::Pipeline(commands)).await.map_err(|e| self.error(&e))?;
        if values.len() != commands.len() {
            let detail = format!("{} answers to {} commands", values.len(), commands.len());
            return Err(PortError::Failed { server: self.server(), detail });
        }
        Ok(values)
    }

    /// Runs a script whose `EVALSHA` was built by [`Script::call`]; loads it where the server does not have it.
    pub(crate) async fn script(&self, slot: u16, script: &Script, call: &Cmd) -> Result<Value, PortError> {
        let mut values = self.run(slot, Request::Command(call)).await;
        if values.as_ref().is_err_and(is_no_script) || values.as_ref().is_ok_and(|v| v.iter().any(no_script))
        {
            // A restart or a failover: scripts are not part of the data.
            self.run(slot, Request::Command(&script.load())).await.map_err(|e| self.error(&e))?;
            values = self.run(slot, Request::Command(call)).await;
        }
        let mut values = values.map_err(|e| self.error(&e))?;
        self.checked(values.pop().unwrap_or_default())
    }

    /// The answer, or the error that stands in its place.
    pub(crate) fn checked(&self, answer: Value) -> Result<Value, PortError> {
        answer.extract_error().map_err(|error| self.error(&error))
    }

    fn error(&self, error: &RedisError) -> PortError {
        port_error(self.0.server, error)
    }

    async fn run(&self, slot: u16, request: Request<'_>) -> RedisResult<Vec<Value>> {
        let mut second_try = false;
        loop {
            let (generation, mut link) = self.link().await?;
            let error = match link.send(slot, request).await {
                Ok(values) => {
                    self.0.silence.answered(slot);
                    return Ok(values);
                }
                Err(error) => error,
            };
            match blame(&error) {
                Blame::Nothing => return Err(error),
                Blame::TimedOut => {
                    if self.0.silence.timed_out(slot) {
                        self.discard(generation, &error).await;
                    }
                    return Err(error);
                }
                Blame::Dropped | Blame::Topology => self.discard(generation, &error).await,
            }
            if second_try {
                return Err(error);
            }
            second_try = true;
        }
    }

    async fn link(&self) -> RedisResult<(u64, Link)> {
        let asked = Instant::now();
        let mut state = self.0.state.lock().await;
        if let Some(link) = &state.link {
            return Ok((state.generation, link.clone()));
        }
        // Whoever waited while another tried and failed shares that failure, or a hundred callers would each wait
        // out the connect time-out behind one another.
        if let Some((when, error)) = &state.failure
            && (*when >= asked || when.elapsed() < PAUSE_AFTER_FAILURE)
        {
            return Err(error.clone());
        }
        match self.0.connect().await {
            Ok(link) => {
                state.generation += 1;
                state.link = Some(link.clone());
                if state.failure.take().is_some() {
                    info!(server = self.0.server, "connected again");
                } else {
                    debug!(server = self.0.server, "connected");
                }
                Ok((state.generation, link))
            }
            Err(error) => {
                // Once for every outage, not for every attempt.
                if state.failure.is_none() {
                    warn!(server = self.0.server, %error, "cannot connect");
                }
                state.failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn discard(&self, generation: u64, error: &RedisError) {
        let mut state = self.0.state.lock().await;
        if state.generation == generation && state.link.take().is_some() {
            self.0.silence.forget();
            debug!(server = self.0.server, %error, "connection given up");
        }
    }
}

fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(redis::ServerErrorKind::NoScript)
}

fn no_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.kind() == Some(redis::ServerErrorKind::NoScript))
}

impl Inner {
    async fn connect(&self) -> RedisResult<Link> {
        let outcome = self.connect_once().await;
        match outcome {
            // A server without TLS waits for the rest of what it takes for a command.
            Err(error) if self.tls && error.is_timeout() => {
                Err((ErrorKind::Io, "no answer to the TLS handshake; is this the server's TLS port?").into())
            }
            outcome => outcome,
        }
    }

    async fn connect_once(&self) -> RedisResult<Link> {
        match &self.target {
            Target::One(client, config) => {
                client.get_multiplexed_async_connection_with_config(config).await.map(Link::One)
            }
            Target::Cluster(client) => {
                // The nodes that are named are tried one after the other, each with the time-out.
                let limit = self.connect_timeout * 3;
                let late = |_| RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
                let link = tokio::time::timeout(limit, client.get_async_connection()).await.map_err(late)?;
                link.map(Link::Cluster)
            }
        }
    }
}

impl Link {
    async fn send(&mut self, slot: u16, request: Request<'_>) -> RedisResult<Vec<Value>> {
        let route = SingleNodeRoutingInfo::SpecificNode(Route::new(slot, SlotAddr::Master));
        match (self, request) {
            (Link::One(link), Request::Command(c)) => link.send_packed_command(c).await.map(|v| vec![v]),
            (Link::One(link), Request::Transaction(p)) => link.send_packed_commands(p, p.len() + 1, 1).await,
            (Link::One(link), Request::Pipeline(p)) => link.send_packed_commands(p, 0, p.len()).await,
            (Link::Cluster(link), Request::Command(c)) => {
                link.route_command(c.clone(), RoutingInfo::SingleNode(route)).await.map(|v| vec![v])
            }
            (Link::Cluster(link), Request::Transaction(p)) => {
                link.route_pipeline(p.clone(), p.len() + 1, 1, route).await
            }
            (Link::Cluster(link), Request::Pipeline(p)) => {
                link.route_pipeline(p.clone(), 0, p.len(), route).await
            }
        }
    }
}

fn target(config: &RedisConfig) -> Result<Target, String> {
    let certificates = config.tls.as_ref().map(certificates).transpose()?;
    let nodes = config.nodes.iter().map(|node| node_info(config, node)).collect::<Result<Vec<_>, _>>()?;
    let text = |error: RedisError| error.to_string();
    if config.cluster {
        let mut builder = ClusterClientBuilder::new(nodes)
            .connection_timeout(config.connect_timeout())
            .response_timeout(config.response_timeout())
            // Retries inside count against the caller's time as well.
            .overall_response_timeout(Some(config.response_timeout() * 2))
            .retries(2)
            .retry_wait_formula(10, 2)
            .min_retry_wait(20)
            .max_retry_wait(200);
        if let Some(certificates) = certificates {
            builder = builder.certs(certificates);
        }
        return builder.build().map(|client| Target::Cluster(Box::new(client))).map_err(text);
    }
    let node = nodes.into_iter().next().ok_or_else(|| "no node is named".to_owned())?;
    let client = match certificates {
        Some(certificates) => redis::Client::build_with_tls(node, certificates),
        None => redis::Client::open(node),
    };
    let timing = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(config.connect_timeout()))
        .set_response_timeout(Some(config.response_timeout()));
    client.map(|client| Target::One(client, timing)).map_err(text)
}

fn node_info(config: &RedisConfig, node: &str) -> Result<ConnectionInfo, String> {
    let (host, port) = split_node(node).ok_or_else(|| format!("{node:?} is not host:port"))?;
    let addr = match config.tls {
        Some(_) => ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: false, tls_params: None },
        None => ConnectionAddr::Tcp(host.to_owned(), port),
    };
    // No library name: one right less that a restricted user needs.
    let mut login = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(username) = &config.username {
        login = login.set_username(username);
    }
    if let Some(password) = &config.password {
        login = login.set_password(password.expose());
    }
    let info = addr.into_connection_info().map_err(|error| error.to_string())?;
    Ok(info.set_redis_settings(login))
}

fn certificates(tls: &TlsConfig) -> Result<TlsCertificates, String> {
    // The TLS library asks for one process-wide provider; another crate may have chosen one before.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let read = |path: &std::path::PathBuf| {
        std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    let client_tls = match (&tls.cert_file, &tls.key_file) {
        (Some(cert), Some(key)) => Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? }),
        _ => None,
    };
    Ok(TlsCertificates { client_tls, root_cert: tls.ca_file.as_ref().map(read).transpose()? })
}
