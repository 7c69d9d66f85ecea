//! [`Peer`]: where a connection leads, and how its socket is opened.

use std::any::Any;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::select_ok;
use redis::{ConnectionAddr, ConnectionInfo, RedisConnectionInfo};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};

use super::credentials::{Credentials, Login};
use crate::failure::CallError;

/// A TCP connection that was idle for this long is probed, and then once per [`INTERVAL`].
const IDLE: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_secs(3);
/// The connection ends when sent data is not acknowledged for this long.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);

/// Both directions of a connection.
pub struct Socket {
    pub(super) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) writer: Box<dyn AsyncWrite + Send + Unpin>,
}

impl Socket {
    /// Uses halves that only close the stream when both are dropped. A stream's own halves also shut it down: a forked child that drops its
    /// copy would end its parent's connection.
    pub fn of(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        Self { reader: Box::new(reader), writer: Box::new(writer) }
    }
}

/// Whom a connection trusts, and the login, as far as the address does not say it.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Credentials that change. Then the address has none.
    pub(crate) credentials: Option<Credentials>,
    /// The application's configuration; `None` for the certificates of the operating system.
    #[cfg(feature = "tls")]
    pub(super) given: Option<Arc<rustls::ClientConfig>>,
}

impl Trust {
    #[cfg(feature = "tls")]
    /// Trusts whom `config` trusts.
    pub fn in_config(config: Arc<rustls::ClientConfig>) -> Self {
        Self { given: Some(config), ..Self::default() }
    }

    /// Adds these credentials.
    pub fn with_credentials(self, credentials: Credentials) -> Self {
        Self { credentials: Some(credentials), ..self }
    }
}

/// A server, a node or a sentinel, and how to reach it.
#[derive(Clone)]
pub struct Peer {
    info: ConnectionInfo,
    trust: Trust,
    /// How to reach it when a test simulates it.
    #[cfg(feature = "simulation")]
    host: Option<Arc<dyn crate::simulation::Host>>,
}

impl Peer {
    pub(crate) fn new(info: ConnectionInfo, trust: Trust) -> Self {
        Self {
            info,
            trust,
            #[cfg(feature = "simulation")]
            host: None,
        }
    }

    /// Reaches it through a simulated network.
    #[cfg(feature = "simulation")]
    pub(crate) fn simulated(self, host: Arc<dyn crate::simulation::Host>) -> Self {
        Self { host: Some(host), ..self }
    }

    pub(crate) fn addr(&self) -> &ConnectionAddr {
        self.info.addr()
    }

    /// The address for messages. An IPv6 address is in brackets.
    pub(crate) fn address(&self) -> String {
        #[cfg(feature = "simulation")]
        if let Some(host) = &self.host {
            return host.to_string();
        }
        match self.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } if host.contains(':') => {
                format!("[{host}]:{port}")
            }
            other => other.to_string(),
        }
    }

    pub(crate) fn settings(&self) -> &RedisConnectionInfo {
        self.info.redis_settings()
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.addr(), ConnectionAddr::TcpTls { .. })
    }

    /// Another server, reached in the same way.
    pub(crate) fn at(&self, host: String, port: u16) -> Self {
        let addr = match self.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Self {
            info: self.info.clone().set_addr(addr),
            #[cfg(feature = "simulation")]
            host: self.host.as_ref().map(|host| host.to_node(usize::from(port - 1))),
            ..self.clone()
        }
    }

    /// The same address for a sentinel, which has no databases, with or without the credentials.
    pub(crate) fn as_sentinel(&self, has_login: bool) -> Self {
        let settings = self.settings().clone().set_db(0);
        let mut sentinel = self.clone();
        if has_login {
            sentinel.info = sentinel.info.set_redis_settings(settings);
        } else {
            sentinel.info = sentinel.info.set_redis_settings(RedisConnectionInfo::default());
            sentinel.trust.credentials = None;
        }
        sentinel
    }

    pub(crate) fn credentials(&self) -> Option<&Credentials> {
        self.trust.credentials.as_ref()
    }

    /// Whether there are credentials.
    pub(crate) fn has_login(&self) -> bool {
        self.credentials().is_some() || self.settings().password().is_some()
    }

    /// The credentials for a connection that is made now.
    pub(crate) async fn login(&self) -> Result<Option<Arc<Login>>, CallError> {
        if let Some(credentials) = self.credentials() {
            return credentials.newest().await.map(Some);
        }
        let (user, password) = (self.settings().username(), self.settings().password());
        Ok(password.map(|password| Arc::new(Login::new(user.unwrap_or_default(), password))))
    }

    /// Fails for settings that allow no connection.
    pub(crate) fn check(&self) -> Result<(), CallError> {
        match self.addr() {
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { .. } => super::tls::config(self.addr(), &self.trust).map(drop),
            #[cfg(not(feature = "tls"))]
            ConnectionAddr::TcpTls { .. } => Err(no_tls()),
            ConnectionAddr::Unix(_) if cfg!(not(unix)) => Err(no_unix()),
            _ => Ok(()),
        }
    }

    /// Connects. The caller applies the time limit.
    pub(crate) async fn open(&self) -> Result<Socket, CallError> {
        #[cfg(feature = "simulation")]
        if let Some(host) = &self.host {
            return host.connect().await;
        }
        let of_setup = |error: io::Error| match error.kind() {
            io::ErrorKind::Unsupported => CallError::Unsupported(error.to_string()),
            // The path of a Unix socket. The client library would report it as a refused connection.
            io::ErrorKind::NotFound => CallError::Setup(
                "there is no such socket: is the server running, and is this the path of its `unixsocket`?",
                Arc::new(error.into()),
            ),
            _ => CallError::of_setup(error.into(), self.is_tls()),
        };
        match self.addr() {
            ConnectionAddr::Tcp(host, port) => {
                Ok(Socket::of(in_runtime(open_tcp(host, *port)).await.map_err(of_setup)?))
            }
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { host, port, .. } => {
                let open = || async { in_runtime(open_tcp(host, *port)).await.map_err(of_setup) };
                Ok(Socket::of(super::tls::connect(open, (self.addr(), host), &self.trust).await?))
            }
            #[cfg(not(feature = "tls"))]
            ConnectionAddr::TcpTls { .. } => Err(no_tls()),
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                let opening = tokio::net::UnixStream::connect(path);
                Ok(Socket::of(in_runtime(opening).await.map_err(of_setup)?))
            }
            _ => Err(no_unix()),
        }
    }
}

/// Without the credentials.
impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({})", self.addr())
    }
}

#[cfg(not(feature = "tls"))]
fn no_tls() -> CallError {
    CallError::Unsupported("TLS needs the feature `tls` of lock-runtime: switch it on in Cargo.toml".to_owned())
}

fn no_unix() -> CallError {
    CallError::Unsupported("this system has no connection of this kind".to_owned())
}

/// Waits for a new socket. On a runtime without I/O it fails as [`Unsupported`](io::ErrorKind::Unsupported), and says what to do.
async fn in_runtime<T>(opening: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match AssertUnwindSafe(opening).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(panic) if names_io(panic.as_ref()) => {
            let reason =
                "it needs I/O of the tokio runtime: call `enable_io` or `enable_all` on the builder of this runtime";
            Err(io::Error::new(io::ErrorKind::Unsupported, reason))
        }
        Err(panic) => resume_unwind(panic),
    }
}

fn names_io(panic: &(dyn Any + Send)) -> bool {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.is_some_and(|text| text.contains("enable_io"))
}

/// Connects to the first address of the host that answers.
async fn open_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
    }
    let tries = addresses.into_iter().map(|address| Box::pin(TcpStream::connect(address)));
    let (stream, _) = select_ok(tries).await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(IDLE).with_interval(INTERVAL))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    use super::*;

    #[test]
    fn an_address_is_written_as_in_a_url() {
        let address = |url: &str| Peer::new(url.into_connection_info().unwrap(), Trust::default()).address();
        assert_eq!(address("redis://[::1]:7802"), "[::1]:7802");
        assert_eq!(address("redis://:secret@10.0.0.5"), "10.0.0.5:6379");
    }
}
