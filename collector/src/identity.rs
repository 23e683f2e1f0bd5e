//! Who looks, as a keyed hash.
//!
//! HMAC-SHA-256 (RFC 2104) over length-prefixed parts, the first of which says what kind of identity it is; the first 16
//! bytes are the viewer. Without the key nobody can tell a viewer from a hash, nor choose ids that bend a sketch. The
//! site is one of the parts, so that sites cannot compare their viewers.

use crate::config::{ConfigError, IdentityConfig};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use onlooker_event::{SiteId, ViewerHash};
use sha2::Sha256;
use std::fmt;
use std::net::IpAddr;

/// Fewest bytes of a key.
const MIN_KEY_BYTES: usize = 32;

/// What identifies a viewer, before it is hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity<'a> {
    /// A back end says who it is.
    Named(&'a str),
    /// A page's own session id.
    Session(&'a str),
    /// Address and user agent.
    Anonymous(IpAddr, Option<&'a str>),
}

impl IdentityConfig {
    /// Tells keys apart without giving one away: the same for the same key, however it is written. None: there is no key
    /// that could be used.
    pub fn fingerprint(&self) -> Option<String> {
        let mut mac = Hasher::new(self).ok()?.keyed;
        parts(&mut mac, &[b"fingerprint"]);
        Some(mac.finalize().into_bytes()[..8].iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Makes viewers' hashes.
#[derive(Clone)]
pub(crate) struct Hasher {
    keyed: Hmac<Sha256>,
    version: u32,
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hasher").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Hasher {
    pub(crate) fn new(config: &IdentityConfig) -> Result<Self, ConfigError> {
        let text = config.secret.expose().trim();
        if text.is_empty() {
            let problem = "is not set; make one with: openssl rand -base64 32";
            return Err(ConfigError::new("identity.secret", problem));
        }
        let key = decode_key(text)
            .ok_or_else(|| ConfigError::new("identity.secret", "is neither base64 nor hex"))?;
        if key.len() < MIN_KEY_BYTES {
            let problem = format!("is {} bytes long, at least {MIN_KEY_BYTES} are needed", key.len());
            return Err(ConfigError::new("identity.secret", problem));
        }
        if config.version == 0 {
            return Err(ConfigError::new("identity.version", "is 0, the first version is 1"));
        }
        let keyed =
            Hmac::new_from_slice(&key).map_err(|e| ConfigError::new("identity.secret", e.to_string()))?;
        Ok(Self { keyed, version: config.version })
    }

    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    pub(crate) fn hash(&self, site: &SiteId, identity: Identity<'_>) -> ViewerHash {
        let mut mac = self.keyed.clone();
        match identity {
            Identity::Named(viewer) => {
                parts(&mut mac, &[b"viewer", site.as_str().as_bytes(), viewer.as_bytes()])
            }
            Identity::Session(id) => parts(&mut mac, &[b"session", site.as_str().as_bytes(), id.as_bytes()]),
            Identity::Anonymous(address, agent) => {
                let (bytes, len) = network(address);
                let agent = agent.unwrap_or_default().as_bytes();
                parts(&mut mac, &[b"address", site.as_str().as_bytes(), &bytes[..len], agent]);
            }
        }
        let mut out = [0; 16];
        out.copy_from_slice(&mac.finalize().into_bytes()[..16]);
        ViewerHash(out)
    }
}

/// Length-prefixed, so that ("ab", "c") and ("a", "bc") differ.
fn parts(mac: &mut Hmac<Sha256>, parts: &[&[u8]]) {
    for part in parts {
        let len = u32::try_from(part.len()).unwrap_or(u32::MAX);
        mac.update(&len.to_be_bytes());
        mac.update(part);
    }
}

/// What of an address identifies: all of IPv4, the /64 of IPv6, since one home has 2^64 of those. IPv4 that came mapped
/// into IPv6 is IPv4.
fn network(address: IpAddr) -> ([u8; 8], usize) {
    let mut out = [0; 8];
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            out[..4].copy_from_slice(&v4.octets());
            (out, 4)
        }
        IpAddr::V6(v6) => {
            out.copy_from_slice(&v6.octets()[..8]);
            (out, 8)
        }
    }
}

fn decode_key(text: &str) -> Option<Vec<u8>> {
    let hex = text.len() >= 2 * MIN_KEY_BYTES && text.len().is_multiple_of(2);
    if hex && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect();
    }
    STANDARD.decode(text).or_else(|_| URL_SAFE_NO_PAD.decode(text)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_ports::Secret;
    use std::collections::HashSet;

    fn hasher(secret: &str) -> Result<Hasher, ConfigError> {
        Hasher::new(&IdentityConfig { version: 1, secret: Secret::new(secret) })
    }

    fn site(name: &str) -> SiteId {
        SiteId::new(name).unwrap()
    }

    const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    #[test]
    fn a_fingerprint_is_that_of_the_key_and_not_of_how_it_is_written() {
        let of = |secret: &str| {
            IdentityConfig { version: 1, secret: Secret::new(secret.to_owned()) }.fingerprint()
        };
        let key = [7_u8; 32];
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(of(&hex), of(&STANDARD.encode(key)));
        assert_eq!(of(&hex).map(|text| text.len()), Some(16));
        assert_ne!(of(&hex), of(&"08".repeat(32)));
        assert_eq!(of("short"), None);
    }

    #[test]
    fn keys_are_checked() {
        assert!(hasher(KEY).is_ok());
        assert!(hasher(&STANDARD.encode([7; 32])).is_ok());
        assert!(hasher("").unwrap_err().to_string().starts_with("identity.secret: is not set"));
        assert!(hasher("c2hvcnQ=").unwrap_err().problem.contains("5 bytes"));
        assert!(hasher("not a key!").unwrap_err().problem.contains("neither"));
    }

    #[test]
    fn the_hash_is_stable() {
        // Computed with Python's hmac module over the same length-prefixed parts.
        let hash = hasher(KEY).unwrap().hash(&site("blog"), Identity::Named("ada"));
        assert_eq!(u128::from_be_bytes(hash.0), EXPECTED_ADA);
    }

    const EXPECTED_ADA: u128 = 0xe17d_466f_fbef_c1a1_bf32_eba6_0695_51ba;

    #[test]
    fn different_people_differ_and_a_home_is_one() {
        let hasher = hasher(KEY).unwrap();
        let s = site("blog");
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let all = [
            hasher.hash(&s, Identity::Named("a")),
            hasher.hash(&s, Identity::Session("a")),
            hasher.hash(&site("other"), Identity::Named("a")),
            hasher.hash(&s, Identity::Anonymous(ip("198.51.100.7"), Some("a"))),
            hasher.hash(&s, Identity::Anonymous(ip("198.51.100.7"), Some("b"))),
            hasher.hash(&s, Identity::Anonymous(ip("198.51.100.8"), Some("a"))),
            hasher.hash(&s, Identity::Anonymous(ip("2001:db8:1:2::1"), Some("a"))),
            hasher.hash(&s, Identity::Anonymous(ip("2001:db8:1:3::1"), Some("a"))),
        ];
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        let home = |host: &str| hasher.hash(&s, Identity::Anonymous(ip(host), Some("a")));
        assert_eq!(home("2001:db8:1:2::1"), home("2001:db8:1:2:ffff::9"));
        assert_eq!(home("::ffff:198.51.100.7"), home("198.51.100.7"));
    }
}
