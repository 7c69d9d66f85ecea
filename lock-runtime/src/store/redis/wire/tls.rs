//! TLS by `rustls`: whom a connection trusts.

use std::sync::{Arc, OnceLock};

use redis::ConnectionAddr;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::failure::CallError;
use super::Trust;

/// How to speak TLS to the server at `addr`. What the application gave counts for all servers.
pub(super) fn config(addr: &ConnectionAddr, trust: &Trust) -> Result<Arc<ClientConfig>, CallError> {
    if let Some(given) = &trust.given {
        return Ok(Arc::clone(given));
    }
    match addr {
        ConnectionAddr::TcpTls { tls_params: Some(_), .. } => Err(refused(
            "the certificates of a client of the `redis` crate can't be read: give a `rustls::ClientConfig` that has them to \
             `Builder::tls`",
        )),
        ConnectionAddr::TcpTls { insecure: true, .. } => Err(refused(
            "`#insecure` is not supported: give a `rustls::ClientConfig` that trusts the server to `Builder::tls`",
        )),
        _ => of_system(),
    }
}

fn refused(text: &str) -> CallError {
    CallError::Unsuitable(text.to_owned())
}

/// Trusts whom the operating system trusts. The certificates are read once.
fn of_system() -> Result<Arc<ClientConfig>, CallError> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(Arc::clone(config));
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let reason = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
        return Err(refused(&format!("no certificate of the operating system can be used{reason}")));
    }
    // The application may have chosen another cryptography.
    let provider = CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&format!("TLS can't be set up: {error}")))?;
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    Ok(Arc::clone(CONFIG.get_or_init(|| config)))
}

/// The handshake with the server called `host`.
pub(super) async fn greet(
    tcp: TcpStream,
    host: &str,
    config: Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, CallError> {
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|_| refused("no certificate can have this host's name"))?;
    TlsConnector::from(config).connect(name, tcp).await.map_err(|error| CallError::of_setup(error.into(), true))
}
