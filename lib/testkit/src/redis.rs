//! A Redis server of one's own.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::folder::server_folder;
use crate::install;
use crate::managed::Managed;
use crate::ports::free_port;
use crate::process::Program;

pub use crate::redis_cluster::{RedisCluster, RedisClusterBuilder};

const READY: Duration = Duration::from_secs(20);
const CLI_SECONDS: &str = "5";

#[derive(Debug, Clone)]
struct TlsFiles {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

/// Settings of a [`RedisServer`]; persistence is off unless asked for.
#[derive(Debug, Clone, Default)]
pub struct RedisBuilder {
    port: u16,
    maxmemory: Option<String>,
    policy: Option<String>,
    password: Option<String>,
    persistent: bool,
    tls: Option<TlsFiles>,
    args: Vec<String>,
}

impl RedisBuilder {
    /// The port; 0, the default, picks a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// `maxmemory`, as Redis writes it (`8mb`, or bytes).
    pub fn maxmemory(mut self, limit: impl ToString) -> Self {
        self.maxmemory = Some(limit.to_string());
        self
    }

    /// `maxmemory-policy`, for example `noeviction` or `volatile-lru`.
    pub fn policy(mut self, policy: &str) -> Self {
        self.policy = Some(policy.to_owned());
        self
    }

    /// The password of the default user.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Keeps the data over [`Managed::kill`] and [`Managed::restart`]: an append-only file that
    /// is synced at every write.
    pub fn persistent(mut self) -> Self {
        self.persistent = true;
        self
    }

    /// Speaks TLS with this certificate instead of plain text, to its clients and within a cluster.
    /// Clients need no certificate.
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some(TlsFiles {
            authority: certificates.authority(),
            certificate: certificates.certificate(),
            key: certificates.key(),
        });
        self
    }

    /// One more directive with its value, for example `("--io-threads", "2")`.
    pub fn arg(mut self, name: &str, value: &str) -> Self {
        self.args.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    /// Redis cannot be installed, or does not come up; the message has the end of its log.
    pub fn start(mut self) -> Result<RedisServer> {
        install::ensure(&[install::REDIS_SERVER, install::REDIS_CLI])?;
        if self.port == 0 {
            self.port = free_port()?;
        }
        let folder = server_folder("redis")?;
        let probe = self.clone();
        let process = Managed::new(self.program(folder.path()), READY, move || probe.answers());
        process.restart()?;
        Ok(RedisServer { settings: self, process, _folder: folder })
    }

    /// What to run in `folder`, for a caller that looks after the process itself. The port has to be set.
    pub fn program(&self, folder: &Path) -> Program {
        let mut args: Vec<String> = Vec::new();
        let mut set = |name: &str, value: &str| args.extend([format!("--{name}"), value.to_owned()]);
        set("bind", "127.0.0.1");
        if let Some(tls) = &self.tls {
            set("port", "0");
            set("tls-port", &self.port.to_string());
            set("tls-ca-cert-file", &tls.authority.to_string_lossy());
            set("tls-cert-file", &tls.certificate.to_string_lossy());
            set("tls-key-file", &tls.key.to_string_lossy());
            set("tls-auth-clients", "no");
            set("tls-cluster", "yes");
            set("tls-replication", "yes");
        } else {
            set("port", &self.port.to_string());
        }
        set("dir", &folder.to_string_lossy());
        set("save", "");
        set("appendonly", if self.persistent { "yes" } else { "no" });
        set("appendfsync", "always");
        set("repl-diskless-sync-delay", "0");
        if let Some(limit) = &self.maxmemory {
            set("maxmemory", limit);
        }
        if let Some(policy) = &self.policy {
            set("maxmemory-policy", policy);
        }
        if let Some(password) = &self.password {
            set("requirepass", password);
            set("masterauth", password);
        }
        args.extend(self.args.iter().cloned());
        Program {
            name: format!("redis-server on port {}", self.port),
            executable: "redis-server".into(),
            args: args.into_iter().map(Into::into).collect(),
            folder: folder.to_owned(),
            log: folder.join("redis.log"),
        }
    }

    /// Whether the server answers to PING.
    pub fn answers(&self) -> bool {
        self.cli().arg("PING").output().is_ok_and(|output| output.stdout == b"PONG\n")
    }

    pub(crate) fn cli(&self) -> Command {
        // redis-cli 7.0 has no time-out of its own, and a paused server would hold it for ever.
        let mut cli = Command::new("timeout");
        cli.args([CLI_SECONDS, "redis-cli", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
        if let Some(password) = &self.password {
            cli.env("REDISCLI_AUTH", password);
        }
        if let Some(tls) = &self.tls {
            cli.arg("--tls").arg("--cacert").arg(&tls.authority);
        }
        cli
    }
}

/// A running redis-server on 127.0.0.1; killed and its folder removed when the value is dropped.
/// A restart finds it empty, unless it was asked to be [`RedisBuilder::persistent`].
#[derive(Debug)]
pub struct RedisServer {
    settings: RedisBuilder,
    process: Managed,
    _folder: TempDir,
}

impl RedisServer {
    /// Settings to change before [`RedisBuilder::start`].
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    /// A server with the defaults: no limit, no password, nothing persisted.
    ///
    /// # Errors
    /// As for [`RedisBuilder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// The port on 127.0.0.1; the same after a restart.
    pub fn port(&self) -> u16 {
        self.settings.port
    }

    /// `redis://127.0.0.1:PORT/`, with the password where one is set, and `rediss` where it speaks TLS.
    pub fn url(&self) -> String {
        let user = self.settings.password.as_ref().map_or(String::new(), |p| format!(":{p}@"));
        let scheme = if self.settings.tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{user}127.0.0.1:{}/", self.port())
    }

    pub(crate) fn settings(&self) -> &RedisBuilder {
        &self.settings
    }

    /// What `redis-cli` prints for a command, without the last newline: a look at the server that
    /// shares no code with the client under test.
    ///
    /// # Errors
    /// The server cannot be reached, does not answer within 5 s, or answers with an error.
    pub fn cli(&self, command: &[&str]) -> Result<String> {
        let output = self.settings.cli().arg("-e").args(command).output().context("cannot run redis-cli")?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            bail!("redis-cli {}: {text}{}", command.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        Ok(text.trim_end_matches('\n').to_owned())
    }
}

impl Deref for RedisServer {
    type Target = Managed;

    fn deref(&self) -> &Managed {
        &self.process
    }
}
