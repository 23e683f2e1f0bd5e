//! Whose address a request comes from.

use axum::http::{HeaderMap, HeaderName};
use ipnet::IpNet;
use std::net::IpAddr;

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The client's address, and what was seen on the way to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) address: IpAddr,
    /// There is an `X-Forwarded-For` that was not believed: most likely a proxy that the configuration does not name,
    /// behind which all viewers are one.
    pub(crate) untrusted_header: bool,
}

/// The peer, or, if the peer is a trusted proxy, the rightmost address of `X-Forwarded-For` (all lines joined, RFC 9110
/// §5.3) that is not a trusted proxy. What stands left of it was written by the client and is not believed.
pub(crate) fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> Client {
    let peer = peer.to_canonical();
    let is_trusted = |address: IpAddr| trusted.iter().any(|net| net.contains(&address));
    if !is_trusted(peer) {
        return Client { address: peer, untrusted_header: headers.contains_key(&FORWARDED_FOR) };
    }
    let mut address = peer;
    let lines = headers.get_all(&FORWARDED_FOR).into_iter().collect::<Vec<_>>();
    'walk: for line in lines.iter().rev() {
        for hop in line.as_bytes().rsplit(|b| *b == b',') {
            // What is no address was not written by a proxy that we trust: the walk ends at the last good one.
            let Some(hop) = std::str::from_utf8(hop).ok().and_then(parse_hop) else { break 'walk };
            address = hop;
            if !is_trusted(hop) {
                break 'walk;
            }
        }
    }
    Client { address, untrusted_header: false }
}

/// `192.0.2.1`, `192.0.2.1:1234`, `2001:db8::1`, `[2001:db8::1]:1234`.
fn parse_hop(text: &str) -> Option<IpAddr> {
    let text = text.trim().trim_matches('"');
    let bare = text.strip_prefix('[').and_then(|t| t.split(']').next());
    let address = match bare {
        Some(v6) => v6.parse().ok(),
        None => text.parse().ok().or_else(|| text.parse::<std::net::SocketAddr>().ok().map(|a| a.ip())),
    };
    address.map(|a: IpAddr| a.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn find(peer: &str, lines: &[&str], trusted: &[&str]) -> (String, bool) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(&FORWARDED_FOR, HeaderValue::from_str(line).unwrap());
        }
        let trusted: Vec<IpNet> = trusted.iter().map(|t| t.parse().unwrap()).collect();
        let found = client(peer.parse().unwrap(), &headers, &trusted);
        (found.address.to_string(), found.untrusted_header)
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        let chain = "198.51.100.7, 203.0.113.9";
        assert_eq!(find("127.0.0.1", &[chain], &[]), ("127.0.0.1".into(), true));
        assert_eq!(find("127.0.0.1", &[chain], &["127.0.0.0/8"]), ("203.0.113.9".into(), false));
        assert_eq!(find("127.0.0.1", &[chain], &["127.0.0.0/8", "203.0.113.0/24"]).0, "198.51.100.7");
        assert_eq!(find("127.0.0.1", &[], &["127.0.0.0/8"]), ("127.0.0.1".into(), false));
    }

    #[test]
    fn what_a_client_puts_in_front_changes_nothing() {
        let trusted = ["127.0.0.0/8", "203.0.113.0/24"];
        let spoofed = "192.0.2.66, 198.51.100.7, 203.0.113.9";
        assert_eq!(find("127.0.0.1", &[spoofed], &trusted).0, "198.51.100.7");
        assert_eq!(
            find("127.0.0.1", &["192.0.2.66", "198.51.100.7, 203.0.113.9"], &trusted).0,
            "198.51.100.7"
        );
        assert_eq!(find("127.0.0.1", &["198.51.100.7, rubbish, 203.0.113.9"], &trusted).0, "203.0.113.9");
    }

    #[test]
    fn ports_and_brackets_are_understood() {
        for (hop, address) in [
            ("192.0.2.1:443", "192.0.2.1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
        ] {
            assert_eq!(find("127.0.0.1", &[hop], &["127.0.0.1/32"]).0, address);
        }
    }
}
