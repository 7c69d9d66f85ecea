//! TLS by `rustls`: whom a connection trusts.

use std::io;
use std::sync::Arc;

use redis::ConnectionAddr;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Trust;
use crate::failure::CallError;
use crate::mutex::Mutex;

/// How to speak TLS to the server at `addr`. The application's configuration applies to all servers.
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

/// The certificates of the operating system, and the configuration that trusts them.
struct Known {
    roots: RootCertStore,
    config: Arc<ClientConfig>,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// Trusts whom the operating system trusts. The certificates are read when first needed, and in [`read_again`].
fn of_system() -> Result<Arc<ClientConfig>, CallError> {
    if let Some(known) = &*KNOWN.lock() {
        return Ok(Arc::clone(&known.config));
    }
    let read = read()?;
    Ok(Arc::clone(&KNOWN.lock().get_or_insert(read).config))
}

/// Reads the certificates of the operating system again: an authority may have been replaced since. `None` when they are the ones in
/// `used`, or can't be read.
fn read_again(used: &Arc<ClientConfig>) -> Option<Arc<ClientConfig>> {
    let read = read().ok()?;
    let mut known = KNOWN.lock();
    let known = match &mut *known {
        Some(known) if known.roots.roots == read.roots.roots => known,
        known => known.insert(read),
    };
    (!Arc::ptr_eq(used, &known.config)).then(|| Arc::clone(&known.config))
}

fn read() -> Result<Known, CallError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let reason = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
        return Err(refused(&format!("no certificate of the operating system can be used{reason}")));
    }
    // The application may have chosen another crypto provider.
    let provider = CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&format!("TLS can't be set up: {error}")))?;
    let config = Arc::new(config.with_root_certificates(roots.clone()).with_no_client_auth());
    Ok(Known { roots, config })
}

/// The handshake with the server called `host` at `addr`. If its certificate is not trusted, and the operating system's certificates have
/// changed, it is tried once more.
pub(super) async fn connect<F: Future<Output = Result<TcpStream, CallError>>>(
    open: impl Fn() -> F,
    (addr, host): (&ConnectionAddr, &str),
    trust: &Trust,
) -> Result<TlsStream<TcpStream>, CallError> {
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|_| refused("no certificate can have this host's name"))?;
    let (mut config, mut is_last) = (config(addr, trust)?, false);
    loop {
        let connector = TlsConnector::from(Arc::clone(&config));
        let error = match connector.connect(name.clone(), open().await?).await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        let Some(text) = what_is_wrong(&error, trust) else { return Err(CallError::of_setup(error.into(), true)) };
        if text != NOT_TRUSTED {
            return Err(CallError::Setup(text, Arc::new(error.into())));
        }
        match read_again(&config).filter(|_| !is_last) {
            Some(newer) => (config, is_last) = (newer, true),
            None => return Err(CallError::Setup(text, Arc::new(error.into()))),
        }
    }
}

const NOT_TRUSTED: &str = "the server's certificate is not trusted, and the certificates on this machine were read just now: name that of \
                           its authority in `SSL_CERT_FILE`, or give a `rustls::ClientConfig` that trusts it to `Builder::tls`";

/// What is wrong with the server's certificate. `None` when the handshake failed for another reason.
fn what_is_wrong(error: &io::Error, trust: &Trust) -> Option<&'static str> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let rustls::Error::InvalidCertificate(reason) = error else { return None };
    Some(match reason {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the server's certificate is for another name: write a name that it has into the URL"
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is out of date, or the clock of this machine is wrong"
        }
        _ if trust.given.is_some() => {
            "the server's certificate is not trusted by the `rustls::ClientConfig` that was given to `Builder::tls`: make a \
             manager with one that trusts its authority"
        }
        _ => NOT_TRUSTED,
    })
}
