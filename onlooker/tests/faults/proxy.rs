//! A wire that can be cut, slowed down and disturbed, before a server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

#[derive(Default)]
struct State {
    /// The server's port; 0: nobody is there yet.
    server: AtomicU16,
    cut: AtomicBool,
    /// Milliseconds that every piece waits.
    delay_ms: AtomicU64,
    flip: AtomicBool,
    pieces: AtomicU64,
    flipped: AtomicU64,
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<State>,
}

impl Proxy {
    /// Refuses everybody until it is told where to lead to.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                tokio::spawn(async move {
                    let server = SocketAddr::from(([127, 0, 0, 1], state.server.load(Ordering::Relaxed)));
                    if state.cut.load(Ordering::Relaxed) || server.port() == 0 {
                        return;
                    }
                    let Ok(server) = TcpStream::connect(server).await else { return };
                    // As the two would without somebody between them.
                    let _ = (client.set_nodelay(true), server.set_nodelay(true));
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

    /// The server's port on 127.0.0.1.
    pub(crate) fn lead_to(&self, server: u16) {
        self.state.server.store(server, Ordering::Relaxed);
    }

    /// Ends all connections, in the middle of whatever they carry, and refuses new ones until it is mended.
    pub(crate) fn cut(&self) {
        self.state.cut.store(true, Ordering::Relaxed);
    }

    pub(crate) fn delay(&self, by: Duration) {
        self.state.delay_ms.store(u64::try_from(by.as_millis()).unwrap(), Ordering::Relaxed);
    }

    /// Turns a bit over in every third piece, of both directions, until it is mended.
    pub(crate) fn flip(&self) {
        self.state.flip.store(true, Ordering::Relaxed);
    }

    /// Bits that were turned over so far.
    pub(crate) fn flipped(&self) -> u64 {
        self.state.flipped.load(Ordering::Relaxed)
    }

    pub(crate) fn mend(&self) {
        self.state.cut.store(false, Ordering::Relaxed);
        self.state.delay_ms.store(0, Ordering::Relaxed);
        self.state.flip.store(false, Ordering::Relaxed);
    }
}

impl State {
    /// The place is spread over the piece by the piece's number.
    fn disturb(&self, piece: &mut [u8]) {
        let number = self.pieces.fetch_add(1, Ordering::Relaxed);
        if !self.flip.load(Ordering::Relaxed) || !number.is_multiple_of(3) {
            return;
        }
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let at = usize::try_from(spread).unwrap() % piece.len();
        piece[at] ^= 1 << (number / 3 % 8);
        self.flipped.fetch_add(1, Ordering::Relaxed);
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
        state.disturb(&mut piece[..length]);
        if to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
}
