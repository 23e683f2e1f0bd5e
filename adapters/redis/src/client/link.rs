//! Connections: where to, how, and sending over them.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{
    AsyncConnectionConfig, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    Pipeline, RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, Value,
};

use crate::config::{RedisConfig, TlsConfig, split_node};

/// A connection that is open.
#[derive(Clone)]
pub(super) enum Link {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// Where to connect to, and how.
pub(super) enum Target {
    One(Box<(redis::Client, AsyncConnectionConfig)>),
    Cluster(Box<ClusterClient>),
}

/// What is sent in one go.
#[derive(Clone, Copy)]
pub(super) enum Request<'a> {
    Command(&'a Cmd),
    /// All or nothing, answered by what `EXEC` answers.
    Transaction(&'a Pipeline),
    /// One answer each, errors among them.
    Pipeline(&'a Pipeline),
}

impl Target {
    pub(super) async fn connect(&self, timeout: Duration) -> RedisResult<Link> {
        match self {
            Target::One(one) => {
                let (client, config) = one.as_ref();
                client.get_multiplexed_async_connection_with_config(config).await.map(Link::One)
            }
            Target::Cluster(client) => {
                // The nodes that are named are tried one after the other, each with the time-out.
                let limit = timeout * 3;
                let late = |_| RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
                let link = tokio::time::timeout(limit, client.get_async_connection()).await.map_err(late)?;
                link.map(Link::Cluster)
            }
        }
    }
}

impl Link {
    pub(super) async fn send(&mut self, slot: u16, request: Request<'_>) -> RedisResult<Vec<Value>> {
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

/// What is wrong with the settings, if they cannot make a client.
pub(super) fn target(config: &RedisConfig) -> Result<Target, String> {
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
        .set_response_timeout(Some(config.response_timeout()))
        // Readers come by the hundred; beyond this many at once they wait for each other.
        .set_pipeline_buffer_size(1_000);
    client.map(|client| Target::One(Box::new((client, timing)))).map_err(text)
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
