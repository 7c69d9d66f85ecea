//! [`Network`]: the way to a server, which a test can close for the client's messages.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// While it is closed, the client's messages are on their way. They arrive when it is open again.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    port: u16,
    state: Arc<watch::Sender<State>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    is_closed: bool,
    /// How many connections have a message on its way.
    stuck: usize,
}

impl Network {
    /// In front of the server on this port.
    pub(crate) async fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let network =
            Self { port: listener.local_addr().unwrap().port(), state: Arc::new(watch::Sender::new(State::default())) };
        tokio::spawn({
            let network = network.clone();
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                    let (said, mut answers) = client.into_split();
                    let (mut answered, to_server) = server.into_split();
                    tokio::spawn(network.clone().carry(said, to_server));
                    tokio::spawn(async move { copy(&mut answered, &mut answers).await });
                }
            }
        });
        network
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn close(&self) {
        self.state.send_modify(|state| state.is_closed = true);
    }

    pub(crate) fn open(&self) {
        self.state.send_modify(|state| state.is_closed = false);
    }

    /// Waits until a message is on its way.
    pub(crate) async fn wait_until_stuck(&self) {
        self.state.subscribe().wait_for(|state| state.stuck > 0).await.unwrap();
    }

    async fn carry(self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut buffer = vec![0; 8192];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            self.pass().await;
            if to.write_all(buffer.get(..length).unwrap_or_default()).await.is_err() {
                return;
            }
        }
    }

    async fn pass(&self) {
        if !self.state.borrow().is_closed {
            return;
        }
        self.state.send_modify(|state| state.stuck += 1);
        self.state.subscribe().wait_for(|state| !state.is_closed).await.unwrap();
        self.state.send_modify(|state| state.stuck -= 1);
    }
}
