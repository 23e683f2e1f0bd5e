//! The one connection: made when needed, shared, replaced when it fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redis::{ErrorKind, RedisError, RedisResult, Value};
use tokio::sync::Mutex;
use tracing::{debug, info, warn};

use super::Role;
use super::link::{Link, Request, Target};
use super::silence::Silence;
use crate::config::RedisConfig;
use crate::error::{Blame, blame};
use crate::metrics::ClientMetrics;

/// After a failed attempt to connect, callers get the same error for this long and the server its peace.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// A cluster's connections are not made anew more often than this, whatever its nodes do.
const PAUSE_AFTER_RENEWAL: Duration = Duration::from_secs(1);

#[derive(Default)]
struct State {
    link: Option<Link>,
    /// Counts connections, so that two callers who saw the same one fail do not throw away two.
    generation: u64,
    failure: Option<(Instant, RedisError)>,
}

pub(super) struct Connection {
    role: Role,
    /// As configured, for people.
    nodes: String,
    target: Target,
    connect_timeout: Duration,
    tls: bool,
    metrics: ClientMetrics,
    silence: Silence,
    renewing: AtomicBool,
    state: Mutex<State>,
}

impl Connection {
    pub(super) fn new(role: Role, target: Target, config: &RedisConfig, metrics: ClientMetrics) -> Self {
        Self {
            role,
            nodes: config.nodes.join(","),
            target,
            connect_timeout: config.connect_timeout(),
            tls: config.tls.is_some(),
            metrics,
            silence: Silence::default(),
            renewing: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    pub(super) async fn run(self: &Arc<Self>, slot: u16, request: Request<'_>) -> RedisResult<Vec<Value>> {
        let mut second_try = false;
        loop {
            let (generation, mut link) = self.link().await?;
            let sent = Instant::now();
            let error = match link.send(slot, request).await {
                Ok(values) => {
                    self.silence.answered(slot);
                    self.metrics.duration.get(self.role).record(sent.elapsed());
                    return Ok(values);
                }
                Err(error) => error,
            };
            let blame = blame(&error);
            if blame == Blame::TimedOut {
                self.metrics.timed_out.get(self.role).increment(1);
            }
            match (link, blame) {
                (_, Blame::Nothing) => return Err(error),
                // One node of many: the others' connections are good, and the client looks for the node by itself, as
                // long as it is not deceived by a connection that stays open.
                (Link::Cluster(_), Blame::TimedOut | Blame::Dropped) => {
                    if self.silence.timed_out(slot) {
                        self.renew(&error);
                    }
                    return Err(error);
                }
                (Link::Cluster(_), Blame::Topology) => {
                    self.renew(&error);
                    return Err(error);
                }
                (Link::One(_), Blame::TimedOut) => {
                    if self.silence.timed_out(slot) {
                        self.discard(generation, &error).await;
                    }
                    return Err(error);
                }
                (Link::One(_), Blame::Dropped | Blame::Topology) => self.discard(generation, &error).await,
            }
            if second_try {
                return Err(error);
            }
            second_try = true;
        }
    }

    async fn link(&self) -> RedisResult<(u64, Link)> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
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
        match self.connect().await {
            Ok(link) => {
                state.generation += 1;
                state.link = Some(link.clone());
                if state.failure.take().is_some() {
                    info!(server = self.role.as_str(), "connected again");
                } else {
                    debug!(server = self.role.as_str(), "connected");
                }
                Ok((state.generation, link))
            }
            Err(error) => {
                // Once for every outage, not for every attempt.
                if state.failure.is_none() {
                    warn!(server = self.role.as_str(), nodes = self.nodes, %error, "cannot connect");
                }
                state.failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn connect(&self) -> RedisResult<Link> {
        let outcome = self.target.connect(self.connect_timeout).await;
        let counter = if outcome.is_ok() { &self.metrics.connected } else { &self.metrics.unreachable };
        counter.get(self.role).increment(1);
        match outcome {
            // A server without TLS waits for the rest of what it takes for a command.
            Err(error) if self.tls && error.is_timeout() => {
                Err((ErrorKind::Io, "no answer to the TLS handshake; is this the server's TLS port?").into())
            }
            outcome => outcome,
        }
    }

    /// The next command connects anew.
    async fn discard(&self, generation: u64, error: &RedisError) {
        let mut state = self.state.lock().await;
        if state.generation == generation && state.link.take().is_some() {
            self.silence.forget();
            debug!(server = self.role.as_str(), %error, "connection given up");
        }
    }

    /// Connects to a cluster anew, while commands to the nodes that answer go on over the old connections.
    fn renew(self: &Arc<Self>, error: &RedisError) {
        if self.renewing.swap(true, Ordering::Relaxed) {
            return;
        }
        debug!(server = self.role.as_str(), %error, "connections are made anew");
        let this = Arc::clone(self);
        tokio::spawn(async move {
            match this.connect().await {
                Ok(link) => {
                    let mut state = this.state.lock().await;
                    state.generation += 1;
                    state.link = Some(link);
                    this.silence.forget();
                }
                Err(error) => debug!(server = this.role.as_str(), %error, "cannot connect anew"),
            }
            tokio::time::sleep(PAUSE_AFTER_RENEWAL).await;
            this.renewing.store(false, Ordering::Relaxed);
        });
    }
}
