//! Whose address a request comes from.

use axum::http::{HeaderMap, HeaderName};
use ipnet::IpNet;
use std::net::IpAddr;

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The peer, or, if the peer is a trusted proxy, the rightmost address of `X-Forwarded-For` (all lines joined, RFC 9110
/// §5.3) that is not a trusted proxy. What stands left of it was written by the client and is not believed.
pub(crate) fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let mut address = peer.to_canonical();
    if !is_trusted(address, trusted) {
        return address;
    }
    let lines = headers.get_all(&FORWARDED_FOR).into_iter().collect::<Vec<_>>();
    for hop in lines.iter().rev().flat_map(|line| line.as_bytes().rsplit(|b| *b == b',')) {
        // What is no address was not written by a proxy that we trust: the walk ends at the last good one.
        let Some(hop) = std::str::from_utf8(hop).ok().and_then(parse_hop) else { break };
        address = hop;
        if !is_trusted(hop, trusted) {
            break;
        }
    }
    address
}

/// Whether a proxy with this address is believed.
pub(crate) fn is_trusted(address: IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|net| net.contains(&address.to_canonical()))
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

    fn find(peer: &str, lines: &[&str], trusted: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(&FORWARDED_FOR, HeaderValue::from_str(line).unwrap());
        }
        let trusted: Vec<IpNet> = trusted.iter().map(|t| t.parse().unwrap()).collect();
        client(peer.parse().unwrap(), &headers, &trusted).to_string()
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        let chain = "198.51.100.7, 203.0.113.9";
        assert_eq!(find("127.0.0.1", &[chain], &[]), "127.0.0.1");
        assert_eq!(find("127.0.0.1", &[chain], &["127.0.0.0/8"]), "203.0.113.9");
        assert_eq!(find("127.0.0.1", &[chain], &["127.0.0.0/8", "203.0.113.0/24"]), "198.51.100.7");
        assert_eq!(find("127.0.0.1", &[], &["127.0.0.0/8"]), "127.0.0.1");
    }

    #[test]
    fn what_a_client_puts_in_front_changes_nothing() {
        let trusted = ["127.0.0.0/8", "203.0.113.0/24"];
        let spoofed = "192.0.2.66, 198.51.100.7, 203.0.113.9";
        assert_eq!(find("127.0.0.1", &[spoofed], &trusted), "198.51.100.7");
        assert_eq!(find("127.0.0.1", &["192.0.2.66", "198.51.100.7, 203.0.113.9"], &trusted), "198.51.100.7");
        assert_eq!(find("127.0.0.1", &["198.51.100.7, rubbish, 203.0.113.9"], &trusted), "203.0.113.9");
    }

    #[test]
    fn ports_and_brackets_are_understood() {
        for (hop, address) in [
            ("192.0.2.1:443", "192.0.2.1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
        ] {
            assert_eq!(find("127.0.0.1", &[hop], &["127.0.0.1/32"]), address);
        }
    }
}
