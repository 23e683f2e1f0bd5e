//! What a folder keeps to itself: the key of the viewers' hashes, and how the commands reach a running process.

use super::system::DEFAULT_SITE;
use crate::config::{Config, SiteSettings};
use anyhow::{Context, Result, bail};
use onlooker_collector::IdentityConfig;
use onlooker_ports::Secret;
use rand::Rng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const IDENTITY: &str = "identity.key";
/// Characters of the shortest key: 32 bytes in base64 without padding.
const LEAST_IDENTITY: usize = 43;
const SESSION: &str = "session.json";

/// The secrets of one folder.
pub(super) struct Secrets {
    identity: String,
    /// For sites that have no token of their own. Another one with each start.
    token: String,
    /// Of its own: whoever has a site's token must not get from there to this one.
    admin: String,
}

/// How to reach the process that has the folder open. Readable by its owner alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Session {
    /// The process.
    pub(crate) pid: u32,
    /// Views and counts.
    pub(crate) url: String,
    /// Health and metrics.
    pub(crate) admin: String,
    /// Of the bearer who may ask the admin listener for more than health and metrics.
    #[serde(default)]
    pub(crate) admin_token: String,
    /// Server tokens of the sites that were configured without one.
    pub(crate) tokens: BTreeMap<String, String>,
}

impl Secrets {
    /// Reads the folder's secrets, or makes them. Whoever loses the identity key counts every viewer anew.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(IDENTITY);
        let identity = match fs::read_to_string(&path) {
            // Asking for a new key, as an absent one does, would count every viewer anew.
            Ok(text) if text.trim().len() < LEAST_IDENTITY => {
                bail!("{} is damaged: put it back from a backup of the folder", path.display())
            }
            Ok(text) => text.trim().to_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let key = random_hex();
                write_privately(&path, key.as_bytes())?;
                key
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        Ok(Self { identity, token: random_hex(), admin: random_hex() })
    }

    /// Fills in what the configuration leaves open: the key, a site, its token.
    pub(super) fn complete(&self, config: &mut Config) {
        if config.identity.secret.expose().is_empty() {
            config.identity = IdentityConfig { version: 1, secret: Secret::new(self.identity.clone()) };
        }
        if config.sites.is_empty() {
            config.sites.insert(DEFAULT_SITE.to_owned(), SiteSettings::default());
        }
        let mut without: Vec<_> = config.sites.iter_mut().filter(|(_, site)| site.token.is_none()).collect();
        for (name, site) in &mut without {
            site.token = Some(Secret::new(self.token_of(name)));
        }
    }

    /// Two sites never have the same.
    fn token_of(&self, site: &str) -> String {
        format!("{}-{site}", self.token)
    }

    /// How to reach the process. `config` is complete.
    pub(super) fn session(&self, address: SocketAddr, config: &Config) -> Session {
        let ours = |(name, site): (&String, &SiteSettings)| {
            let token = self.token_of(name);
            let given = site.token.as_ref().is_some_and(|t| t.expose() == token);
            given.then(|| (name.clone(), token))
        };
        Session {
            pid: std::process::id(),
            url: format!("http://{address}"),
            admin: String::new(),
            admin_token: self.admin.clone(),
            tokens: config.sites.iter().filter_map(ours).collect(),
        }
    }
}

impl Session {
    fn path(folder: &Path) -> PathBuf {
        folder.join(SESSION)
    }

    /// Leaves the note in the folder.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        write_privately(&Self::path(folder), &serde_json::to_vec(self)?)
    }

    /// Takes the note away, at the end.
    pub(super) fn remove(folder: &Path) {
        // One that stays is recognised: the folder is not locked.
        let _ = fs::remove_file(Self::path(folder));
    }

    /// The note of the process that has the folder open. None: it has written none yet.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(Self::path(folder)).ok()?).ok()
    }
}

fn random_hex() -> String {
    let mut bytes = [0_u8; 32];
    rand::rng().fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether there is a key already, so that none would be made.
pub(crate) fn has_identity(folder: &Path, config: &Config) -> bool {
    !config.identity.secret.expose().is_empty() || folder.join(IDENTITY).exists()
}

/// The key that viewers of this folder are hashed with.
pub(crate) fn identity(folder: &Path, config: &Config) -> Result<IdentityConfig> {
    let mut config = config.clone();
    Secrets::open(folder)?.complete(&mut config);
    Ok(config.identity)
}

/// Gives a new folder the key of another one.
pub(crate) fn adopt_identity(folder: &Path, file: &Path) -> Result<()> {
    let given = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let path = folder.join(IDENTITY);
    match fs::read_to_string(&path) {
        Ok(own) if own.trim() == given.trim() => Ok(()),
        Ok(_) => bail!("{} has a key of its own, in {}", folder.display(), path.display()),
        Err(error) if error.kind() == ErrorKind::NotFound => write_privately(&path, given.trim().as_bytes()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Whole or not at all, for the owner alone, on the disk when it returns.
pub(crate) fn write_privately(path: &Path, content: &[u8]) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let draft = path.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
