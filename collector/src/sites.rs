//! The configured sites, found by name, public key or token at the same cost however many there are.

use crate::config::{CollectorConfig, ConfigError, SiteConfig};
use onlooker_event::SiteId;
use onlooker_ports::Secret;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use subtle::ConstantTimeEq;

/// Smallest token, in bytes.
const MIN_TOKEN_BYTES: usize = 16;

/// A site, ready for use.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) id: SiteId,
    pub(crate) config: SiteConfig,
    /// As browsers write them.
    origins: Vec<Box<str>>,
    any_origin: bool,
}

impl Site {
    /// Whether pages of this origin may send views of the site.
    pub(crate) fn allows(&self, origin: &str) -> bool {
        self.any_origin || self.origins.iter().any(|allowed| **allowed == *origin)
    }
}

/// All sites.
#[derive(Debug)]
pub(crate) struct Sites {
    all: Vec<Site>,
    by_name: HashMap<Box<str>, usize>,
    by_key: HashMap<Box<str>, usize>,
    /// By the token's SHA-256: how long a look-up takes says nothing about a token that has to be guessed.
    by_token: HashMap<[u8; 32], usize>,
    origins: HashSet<Box<str>>,
    any_origin: bool,
}

impl Sites {
    /// Reads the sites; what is wrong with them is added to `faults`.
    pub(crate) fn read(config: &CollectorConfig, faults: &mut Vec<ConfigError>) -> Self {
        let mut sites = Self {
            all: Vec::new(),
            by_name: HashMap::new(),
            by_key: HashMap::new(),
            by_token: HashMap::new(),
            origins: HashSet::new(),
            any_origin: false,
        };
        for (name, config) in &config.sites {
            match SiteId::new(name) {
                Ok(id) => sites.add(id, config.clone(), faults),
                Err(problem) => {
                    faults.push(ConfigError::new(format!("sites.{name}"), format!("the name {problem}")));
                }
            }
        }
        sites
    }

    fn add(&mut self, id: SiteId, config: SiteConfig, faults: &mut Vec<ConfigError>) {
        let index = self.all.len();
        let mut fault = |key: &str, problem: String| {
            faults.push(ConfigError::new(format!("sites.{id}.{key}"), problem));
        };
        if let Some(key) = config.key.as_deref() {
            if key.trim().is_empty() {
                fault("key", "is empty; leave it out if pages need none".into());
            } else if let Some(other) = self.by_key.insert(key.into(), index) {
                fault("key", format!("is the key of {} too", self.all[other].id));
            }
        }
        if let Some(token) = config.token.as_ref().map(Secret::expose) {
            if token.len() < MIN_TOKEN_BYTES {
                fault(
                    "token",
                    format!("is {} bytes long, at least {MIN_TOKEN_BYTES} are needed", token.len()),
                );
            } else if let Some(other) = self.by_token.insert(Sha256::digest(token).into(), index) {
                fault("token", format!("is the token of {} too", self.all[other].id));
            }
        }
        let mut site = Site { id: id.clone(), origins: Vec::new(), any_origin: false, config };
        for origin in &site.config.origins {
            match as_browsers_write(origin) {
                Some(origin) => site.origins.push(origin.into()),
                None if origin == "*" => site.any_origin = true,
                None => fault("origins", format!("{origin:?} is not scheme://host[:port]")),
            }
        }
        self.any_origin |= site.any_origin;
        self.origins.extend(site.origins.iter().cloned());
        self.by_name.insert(id.as_str().into(), index);
        self.all.push(site);
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&Site> {
        self.by_name.get(name).map(|i| &self.all[*i])
    }

    /// The only site, for views that name none; none if there are several, or if pages have to send its key.
    pub(crate) fn only(&self) -> Option<&Site> {
        match self.all.as_slice() {
            [site] if site.config.key.is_none() => Some(site),
            _ => None,
        }
    }

    pub(crate) fn by_key(&self, key: &str) -> Option<&Site> {
        self.by_key.get(key).map(|i| &self.all[*i])
    }

    /// The site of a server token.
    pub(crate) fn by_token(&self, token: &[u8]) -> Option<&Site> {
        let site = &self.all[*self.by_token.get(&<[u8; 32]>::from(Sha256::digest(token)))?];
        let expected = site.config.token.as_ref()?.expose();
        bool::from(expected.as_bytes().ct_eq(token)).then_some(site)
    }

    /// Whether any site takes views from pages of this origin.
    pub(crate) fn anyone_allows(&self, origin: &str) -> bool {
        self.any_origin || self.origins.contains(origin)
    }
}

/// An origin in lower case and without the scheme's own port (RFC 6454 §6.2). None if it is no origin.
fn as_browsers_write(origin: &str) -> Option<String> {
    let origin = origin.to_ascii_lowercase();
    let (scheme, host) = origin.split_once("://")?;
    let own_port = match scheme {
        "https" => ":443",
        "http" => ":80",
        _ => return None,
    };
    let host = host.strip_suffix(own_port).unwrap_or(host);
    let plain = !host.is_empty() && !host.contains(['/', '?', '#', '*', '@', ' ', ',']);
    plain.then(|| format!("{scheme}://{host}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(origins: &[&str]) -> SiteConfig {
        SiteConfig { origins: origins.iter().map(|o| (*o).to_owned()).collect(), ..SiteConfig::default() }
    }

    fn read(sites: Vec<(&str, SiteConfig)>) -> (Sites, Vec<String>) {
        let sites = sites.into_iter().map(|(name, site)| (name.to_owned(), site)).collect();
        let mut faults = Vec::new();
        let sites = Sites::read(&CollectorConfig { sites, ..CollectorConfig::default() }, &mut faults);
        (sites, faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_fault_is_named() {
        let key = |key: &str| SiteConfig { key: Some(key.into()), ..SiteConfig::default() };
        let token = |token: &str| SiteConfig { token: Some(Secret::new(token)), ..SiteConfig::default() };
        let (_, faults) = read(vec![
            ("A", site(&[])),
            ("b", key(" ")),
            ("c", token("short")),
            ("d", site(&["blog.example.com", "https://x.example/", "https://*.x.example", "ftp://x"])),
            ("e", SiteConfig { key: Some("k".into()), ..token("0123456789abcdef") }),
            ("f", SiteConfig { key: Some("k".into()), ..token("0123456789abcdef") }),
        ]);
        let keys: Vec<_> = faults.iter().filter_map(|f| f.split(": ").next()).collect();
        let expected = [
            "sites.A",
            "sites.b.key",
            "sites.c.token",
            "sites.d.origins",
            "sites.d.origins",
            "sites.d.origins",
            "sites.d.origins",
            "sites.f.key",
            "sites.f.token",
        ];
        assert_eq!(keys, expected, "{faults:?}");
        assert!(!faults.iter().any(|f| f.contains("0123456789abcdef")), "a token is never printed");
    }

    #[test]
    fn sites_are_found_by_name_key_and_token() {
        let config = SiteConfig {
            key: Some("pk".into()),
            token: Some(Secret::new("0123456789abcdef")),
            ..SiteConfig::default()
        };
        let (sites, faults) = read(vec![("blog", config), ("shop", SiteConfig::default())]);
        assert_eq!(faults, Vec::<String>::new());
        let name = |site: Option<&Site>| site.map(|s| s.id.to_string());
        assert_eq!(name(sites.by_name("shop")).as_deref(), Some("shop"));
        assert_eq!(name(sites.by_key("pk")).as_deref(), Some("blog"));
        assert_eq!(name(sites.by_token(b"0123456789abcdef")).as_deref(), Some("blog"));
        assert_eq!(name(sites.by_token(b"0123456789abcdeF")), None);
        assert_eq!(name(sites.by_token(b"")), None);
    }

    #[test]
    fn origins_are_compared_as_browsers_write_them() {
        let (sites, faults) = read(vec![
            ("blog", site(&["https://Blog.example.com:443", "http://localhost:8080"])),
            ("any", site(&[])),
        ]);
        assert_eq!(faults, Vec::<String>::new());
        let blog = sites.by_name("blog").unwrap();
        assert!(blog.allows("https://blog.example.com") && blog.allows("http://localhost:8080"));
        for other in ["https://blog.example.com.evil.example", "http://blog.example.com", "null", ""] {
            assert!(!blog.allows(other) && !sites.anyone_allows(other), "{other}");
        }
        let (sites, _) = read(vec![("any", site(&["*"]))]);
        assert!(sites.anyone_allows("https://anything.example"));
    }
}
