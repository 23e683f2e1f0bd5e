//! Loopback ports that stay free until the server that was promised them has bound them.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::folder::user_folder;

/// Ports below Linux's ephemeral range (32768 and up). A port of that range can be taken as the source
/// port of any outgoing connection while its server is down, even by a client that tries to reach
/// that very server and then talks to itself.
const FIRST: u16 = 10_000;
const COUNT: u16 = 6_000;

/// Distance from a Redis Cluster node's port to its bus port, which has to be free as well.
const BUS_OFFSET: u16 = 10_000;

/// Processes begin at different places, so that they seldom try each other's ports.
static START: LazyLock<u16> = LazyLock::new(|| {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.subsec_nanos());
    ((nanos / 1_000 + std::process::id()) % u32::from(COUNT)) as u16
});

static NEXT: AtomicU16 = AtomicU16::new(0);

/// Lock files held for the life of this process: each says that its port is ours.
static RESERVED: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A TCP port on 127.0.0.1 that nobody listens on and that no other test process gets, either,
/// as long as this process lives. The port 10,000 above it is free too (Redis Cluster's bus).
///
/// # Errors
/// No port of the range is free, or the folder of the lock files cannot be written.
pub fn free_port() -> Result<u16> {
    let folder = user_folder()?.join("ports");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (*START + step % COUNT) % COUNT;
        let lock = File::create(folder.join(port.to_string()))?;
        if lock.try_lock().is_err() || !is_free(port) || !is_free(port + BUS_OFFSET) {
            continue;
        }
        RESERVED.lock().unwrap_or_else(|e| e.into_inner()).push(lock);
        return Ok(port);
    }
    bail!("no free port between {FIRST} and {}", FIRST + COUNT)
}

/// Whether 127.0.0.1:`port` can be bound now.
pub fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// Whether something listens on 127.0.0.1:`port`.
pub fn is_open(port: u16) -> bool {
    is_open_at(SocketAddr::from(([127, 0, 0, 1], port)))
}

pub(crate) fn is_open_at(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice_nor_while_somebody_listens() {
        let first = free_port().unwrap();
        let listener = TcpListener::bind(("127.0.0.1", first)).unwrap();
        assert!(is_open(first) && !is_free(first));
        let more: Vec<u16> = (0..50).map(|_| free_port().unwrap()).collect();
        assert!(!more.contains(&first));
        drop(listener);
        assert!(is_free(first));
    }
}
