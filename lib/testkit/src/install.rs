//! What has to be on the machine, and how it gets there.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::folder::user_folder;

/// A program that comes from a Debian package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tool {
    /// Name of the executable on the PATH.
    pub executable: &'static str,
    /// Debian package that holds it.
    pub package: &'static str,
}

/// The Redis server.
pub const REDIS_SERVER: Tool = Tool { executable: "redis-server", package: "redis-server" };
/// The Redis command line.
pub const REDIS_CLI: Tool = Tool { executable: "redis-cli", package: "redis-tools" };
/// Makes certificates.
pub const OPENSSL: Tool = Tool { executable: "openssl", package: "openssl" };
/// Scrapes metrics.
pub const PROMETHEUS: Tool = Tool { executable: "prometheus", package: "prometheus" };
/// Checks and tests Prometheus's rules.
pub const PROMTOOL: Tool = Tool { executable: "promtool", package: "prometheus" };
/// Fetches the servers' Java archives.
pub const MAVEN: Tool = Tool { executable: "mvn", package: "maven" };
/// Runs the Java servers; 17 or newer.
pub const JAVA: Tool = Tool { executable: "java", package: "openjdk-17-jre-headless" };

/// Shows programs another wall clock.
pub const FAKETIME: Tool = Tool { executable: "faketime", package: "faketime" };

/// Finds the libraries that a build links.
const PKG_CONFIG: Tool = Tool { executable: "pkg-config", package: "pkg-config" };

/// What building Kafka's client with TLS needs: a header, and the package that brings it.
const HEADERS: [(&str, &str); 2] =
    [("/usr/include/openssl/ssl.h", "libssl-dev"), ("/usr/include/zlib.h", "zlib1g-dev")];

impl Tool {
    /// Where the PATH has it.
    pub fn find(&self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join(self.executable)).find(|file| file.is_file())
    }
}

/// Makes sure that all of `tools` are there, by installing the packages of those that are not.
///
/// # Errors
/// Something is missing and cannot be installed: the message names the packages.
pub fn ensure(tools: &[Tool]) -> Result<()> {
    if tools.iter().all(|tool| tool.find().is_some()) {
        return Ok(());
    }
    let lock = apt_lock()?;
    let missing: Vec<&Tool> = tools.iter().filter(|tool| tool.find().is_none()).collect();
    apt_install(&missing.iter().map(|tool| tool.package).collect::<Vec<_>>())?;
    drop(lock);
    match tools.iter().find(|tool| tool.find().is_none()) {
        Some(tool) => bail!("{} is still not on the PATH after its package was installed", tool.executable),
        None => Ok(()),
    }
}

/// Makes sure that the workspace builds with Kafka over TLS.
///
/// # Errors
/// Something is missing and cannot be installed: the message names the packages.
pub fn for_builds() -> Result<()> {
    ensure(&[PKG_CONFIG])?;
    let missing = HEADERS.iter().filter(|(header, _)| !Path::new(header).exists());
    let packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if packages.is_empty() {
        return Ok(());
    }
    let _only_one_installs = apt_lock()?;
    apt_install(&packages)
}

/// Makes sure that every server can be started: programs, Java, and the archives of Kafka and Cassandra.
///
/// # Errors
/// Something is missing and cannot be installed or fetched.
pub fn for_servers() -> Result<()> {
    ensure(&[REDIS_SERVER, REDIS_CLI, OPENSSL, PROMETHEUS, PROMTOOL, FAKETIME])?;
    crate::kafka_config::library()?;
    crate::cassandra_config::library()?;
    Ok(())
}

/// Held while apt runs: it refuses a second one.
pub(crate) fn apt_lock() -> Result<File> {
    exclusive(&user_folder()?.join("apt.lock"))
}

/// Installs Debian packages; refreshes the package lists only when the first try fails.
///
/// # Errors
/// Not root, no `apt-get`, or it failed: the message names the packages.
pub fn apt_install(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let names = packages.join(" ");
    // SAFETY: geteuid always succeeds and touches no memory.
    if unsafe { libc::geteuid() } != 0 {
        bail!("missing on this machine: {names}; run as root: apt-get install {names}");
    }
    eprintln!("installing {names}");
    let install = || apt(&[&["install", "-y", "-q", "--no-install-recommends"], packages].concat());
    if install().is_err() {
        apt(&["update", "-q"])?;
        install().with_context(|| format!("cannot install {names}"))?;
    }
    Ok(())
}

fn apt(args: &[&str]) -> Result<()> {
    let output = Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive").output();
    let output =
        output.context("cannot run apt-get; on another system install the packages by its own means")?;
    if !output.status.success() {
        bail!("apt-get {} failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// An exclusive lock on a file, held until the value is dropped; waits for another process's.
///
/// # Errors
/// The file cannot be created or locked.
pub fn exclusive(path: &Path) -> Result<File> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}
