//! A session with the cluster: made when first needed, and made anew when every node was lost.

use crate::config::{ConfigError, ScyllaConfig};
use crate::error::{from_new_session, misconfigured, unavailable};
use crate::statements::Prepared;
use crate::tls::client_config;
use onlooker_ports::PortError;
use scylla::client::Compression;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::statement::Consistency;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// After a failed try callers get its error for so long, instead of trying one after the other.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// A session and what was prepared on it.
pub(crate) struct Live {
    pub(crate) session: Session,
    pub(crate) prepared: Prepared,
}

/// The way to the cluster.
pub(crate) struct Link {
    config: ScyllaConfig,
    tls: Option<Arc<rustls::ClientConfig>>,
    current: RwLock<Option<Arc<Live>>>,
    /// Held while the first session is made; holds how the last try failed.
    first: Mutex<Option<(Instant, PortError)>>,
    renewing: AtomicBool,
}

impl Link {
    pub(crate) fn new(config: &ScyllaConfig) -> Result<Arc<Self>, ConfigError> {
        if let Some(fault) = config.faults().into_iter().next() {
            return Err(fault);
        }
        Ok(Arc::new(Self {
            tls: config.tls.as_ref().map(client_config).transpose()?,
            config: config.clone(),
            current: RwLock::new(None),
            first: Mutex::new(None),
            renewing: AtomicBool::new(false),
        }))
    }

    fn current(&self) -> Option<Arc<Live>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_current(&self, live: Live) -> Arc<Live> {
        let live = Arc::new(live);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&live));
        live
    }

    /// The session, made now if there is none.
    pub(crate) async fn live(&self) -> Result<Arc<Live>, PortError> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let mut last = self.first.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        if let Some((at, error)) = &*last
            && at.elapsed() < TRY_AGAIN_AFTER
        {
            return Err(error.clone());
        }
        match self.make().await {
            Ok(live) => Ok(self.set_current(live)),
            Err(error) => {
                *last = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn make(&self) -> Result<Live, PortError> {
        let session = open(&self.config, self.tls.clone()).await?;
        // The driver sets no limit for preparing.
        let limit = self.config.request_timeout();
        let prepared = tokio::time::timeout(limit, Prepared::new(&session, &self.config.keyspace)).await;
        let prepared = prepared.unwrap_or_else(|_| Err(no_answer(limit)))?;
        Ok(Live { session, prepared })
    }

    /// Hands a failed request's error on. Where no node is connected any more, a new session is tried in the background:
    /// it is there as soon as a node is, while the driver's own reconnecting waits up to 10 s between tries. The old
    /// session stays until then, as it may know nodes that the configuration does not name.
    pub(crate) fn note(self: &Arc<Self>, live: &Live, error: PortError) -> PortError {
        let lost = !live.session.get_cluster_state().get_nodes_info().iter().any(|node| node.is_connected());
        if error.is_transient() && lost && !self.renewing.swap(true, Ordering::AcqRel) {
            let link = Arc::clone(self);
            tokio::spawn(async move {
                if let Ok(live) = link.make().await {
                    link.set_current(live);
                    tracing::info!("archive session renewed");
                }
                link.renewing.store(false, Ordering::Release);
            });
        }
        error
    }

    /// True while some node is connected, as far as the driver knows without a round trip.
    pub(crate) fn is_connected(&self) -> bool {
        self.current().is_some_and(|live| {
            live.session.get_cluster_state().get_nodes_info().iter().any(|node| node.is_connected())
        })
    }
}

fn no_answer(limit: Duration) -> PortError {
    unavailable(format!("no answer within {} ms", limit.as_millis()))
}

/// Connects. Bounded in time, also where a node takes the connection and then says nothing.
pub(crate) async fn open(
    config: &ScyllaConfig,
    tls: Option<Arc<rustls::ClientConfig>>,
) -> Result<Session, PortError> {
    let mut policy = DefaultPolicy::builder().token_aware(true);
    if let Some(dc) = &config.local_dc {
        // Nodes of other data centres are never asked: they would answer for a quorum of their own.
        policy = policy.prefer_datacenter(dc.clone()).permit_dc_failover(false);
    }
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::LocalQuorum)
        .request_timeout(Some(config.request_timeout()))
        .load_balancing_policy(policy.build())
        .build();
    let mut builder = SessionBuilder::new()
        .known_nodes(&config.nodes)
        .default_execution_profile_handle(profile.into_handle())
        .connection_timeout(config.connect_timeout())
        // A node that stopped answering is dropped after these two, and the others get its requests.
        .keepalive_interval(Duration::from_secs(1))
        .keepalive_timeout(Duration::from_secs(1))
        // Routing needs the keyspace's replication, and nothing else of the schema.
        .keyspaces_to_fetch([&config.keyspace])
        .fetch_full_schema_metadata(false)
        .metadata_request_clientside_timeout(config.request_timeout())
        .metadata_request_serverside_timeout(config.request_timeout())
        .hostname_resolution_timeout(Some(config.connect_timeout()))
        .compression(config.compression.then_some(Compression::Lz4))
        .driver_config_reporting(false)
        .tls_context(tls);
    if let (Some(user), Some(password)) = (&config.username, &config.password) {
        builder = builder.user(user, password.expose());
    }
    let limit = config.connect_timeout() + config.request_timeout();
    let session = match tokio::time::timeout(limit, builder.build()).await {
        Ok(built) => built.map_err(|e| from_new_session(&e)),
        Err(_) => Err(no_answer(limit)),
    };
    // Nobody was reached: where it was tried is what a person asks next.
    let session = session.map_err(|error| match error {
        PortError::Unavailable { server, detail } => {
            PortError::Unavailable { server, detail: format!("{}: {detail}", config.nodes.join(",")) }
        }
        other => other,
    })?;
    check_dc(config, &session)?;
    Ok(session)
}

/// A misspelt data centre would leave no node to ask, for ever, with an error that sounds like an outage.
fn check_dc(config: &ScyllaConfig, session: &Session) -> Result<(), PortError> {
    let Some(dc) = &config.local_dc else { return Ok(()) };
    let known = data_centres(session);
    if known.contains(dc) {
        return Ok(());
    }
    Err(misconfigured(format!(
        "local_dc: there is no data centre {dc:?}; the cluster has {}",
        known.join(", ")
    )))
}

/// The data centres of the cluster.
pub(crate) fn data_centres(session: &Session) -> Vec<String> {
    let state = session.get_cluster_state();
    let mut names: Vec<String> =
        state.get_nodes_info().iter().filter_map(|node| node.datacenter.clone()).collect();
    names.sort();
    names.dedup();
    names
}
