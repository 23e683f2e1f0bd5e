//! A wire that can be cut and slowed down, before a server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

#[derive(Default)]
struct State {
    cut: AtomicBool,
    /// Milliseconds that every piece waits.
    delay_ms: AtomicU64,
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<State>,
}

impl Proxy {
    pub(crate) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::<State>::default();
        let server = SocketAddr::from(([127, 0, 0, 1], server));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                tokio::spawn(async move {
                    if state.cut.load(Ordering::Relaxed) {
                        return;
                    }
                    let Ok(server) = TcpStream::connect(server).await else { return };
                    let (client_in, client_out) = client.into_split();
                    let (server_in, server_out) = server.into_split();
                    // Whichever ends first takes the other along.
                    tokio::select! {
                        () = pass(client_in, server_out, &state) => {}
                        () = pass(server_in, client_out, &state) => {}
                    }
                });
            }
        });
        Self { port, state }
    }

    /// Ends all connections, in the middle of whatever they carry, and refuses new ones until it is mended.
    pub(crate) fn cut(&self) {
        self.state.cut.store(true, Ordering::Relaxed);
    }

    pub(crate) fn delay(&self, by: Duration) {
        self.state.delay_ms.store(u64::try_from(by.as_millis()).unwrap(), Ordering::Relaxed);
    }

    pub(crate) fn mend(&self) {
        self.state.cut.store(false, Ordering::Relaxed);
        self.state.delay_ms.store(0, Ordering::Relaxed);
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: &State) {
    // Small pieces, so that a cut falls into the middle of a message.
    let mut piece = [0; 1_024];
    loop {
        // Looks up now and then: a cut ends also who is silent.
        let read = tokio::time::timeout(Duration::from_millis(20), from.read(&mut piece)).await;
        if state.cut.load(Ordering::Relaxed) {
            return;
        }
        let Ok(read) = read else { continue };
        let Ok(length @ 1..) = read else { return };
        let delay = state.delay_ms.load(Ordering::Relaxed);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        if to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
}
