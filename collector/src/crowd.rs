//! Notices that one private address stands for nearly everybody: a proxy or a container's gateway in front hides the
//! viewers, and they all count as one.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Anonymous requests after which the shares are looked at.
const WINDOW: u32 = 1_000;
/// How far ahead of all other private addresses one has to be: more than 90 % of the window.
const LEAD: u32 = 810;

/// The most frequent private address of a window, by Boyer and Moore's majority vote: one candidate and one number,
/// however many addresses there are.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    seen: AtomicU32,
    vote: Mutex<Option<(IpAddr, u32)>>,
}

impl Crowd {
    /// Takes note of an anonymous request. True once a window in which nearly all came from one private address.
    pub(crate) fn note(&self, address: IpAddr) -> bool {
        if is_private(address) {
            let mut vote = self.vote.lock().unwrap_or_else(PoisonError::into_inner);
            *vote = match *vote {
                Some((candidate, lead)) if candidate == address => Some((candidate, lead + 1)),
                Some((candidate, lead)) if lead > 1 => Some((candidate, lead - 1)),
                Some(_) => None,
                None => Some((address, 1)),
            };
        }
        if self.seen.fetch_add(1, Ordering::Relaxed) + 1 != WINDOW {
            return false;
        }
        self.seen.store(0, Ordering::Relaxed);
        let vote = self.vote.lock().unwrap_or_else(PoisonError::into_inner).take();
        vote.is_some_and(|(_, lead)| lead >= LEAD)
    }
}

/// An address that no viewer on the Internet has.
pub(crate) fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn warned(address: impl Fn(u32) -> IpAddr) -> bool {
        let crowd = Crowd::default();
        (0..WINDOW).filter(|i| crowd.note(address(*i))).count() == 1
    }

    #[test]
    fn a_gateway_in_front_of_everybody_is_noticed() {
        let gateway = ip("172.17.0.1");
        assert!(warned(|_| gateway));
        assert!(warned(|i| if i % 20 == 0 { ip("198.51.100.7") } else { gateway }));
        assert!(warned(|i| if i % 20 == 0 { IpAddr::from([10, 0, 0, (i % 250) as u8]) } else { gateway }));
    }

    #[test]
    fn an_intranet_and_the_internet_are_not() {
        assert!(!warned(|i| IpAddr::from([10, 0, (i / 250) as u8, (i % 250) as u8])));
        assert!(!warned(|i| if i % 4 == 0 { ip("198.51.100.7") } else { ip("10.0.0.1") }));
        assert!(!warned(|_| ip("198.51.100.7")), "one public address is one busy network");
    }
}
