//! Locks over TLS, with a server certificate that is signed by the test's own authority.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lock_runtime::rustls::SignatureScheme;
use lock_runtime::rustls::client::ResolvesClientCert;
use lock_runtime::rustls::crypto::ring;
use lock_runtime::rustls::pki_types::pem::PemObject as _;
use lock_runtime::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use lock_runtime::rustls::sign::CertifiedKey;
use lock_runtime::{Builder, LockError, LockManager};
use redis::TlsCertificates;
use tests::child::{self, Child};
use tests::patience::{NOISE, eventually};
use tests::server::{Server, free_port};
use tests::tls::{Authority, arguments};

const LONG: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_millis(700);

/// A server with a plain port for the test itself, and a TLS port.
struct Secured {
    server: Server,
    port: u16,
    authority: Authority,
}

impl Secured {
    fn start() -> Self {
        Self::by(Authority::new())
    }

    fn by(authority: Authority) -> Self {
        let port = free_port();
        let options = arguments(&authority.options(port));
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        Self { server: Server::with(&options), port, authority }
    }

    fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.port)
    }

    fn client(&self) -> redis::Client {
        let certificates =
            TlsCertificates { client_tls: None, root_cert: Some(self.authority.pem().to_owned().into_bytes()) };
        redis::Client::build_with_tls(self.url(), certificates).unwrap()
    }

    fn builder(&self) -> Builder {
        LockManager::builder().url(&self.url()).tls(self.authority.trusted())
    }

    async fn manager(&self) -> LockManager {
        self.builder().connect().await.unwrap()
    }
}

/// Checks that the connection is refused in time, and returns the error's text.
async fn is_refused(url: &str) -> String {
    let start = Instant::now();
    let error = LockManager::builder().url(url).connect_timeout(CONNECT).connect().await.unwrap_err();
    assert!(start.elapsed() < CONNECT + Duration::from_millis(100) + NOISE, "{:?}", start.elapsed());
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn locks_pass_between_managers_over_tls() {
    let secured = Secured::start();
    let (north, south) = (secured.manager().await, secured.manager().await);
    let guard = north.lock("p", "k").fenced(true).acquire().await.unwrap();
    eventually("the lease is confirmed", Duration::from_secs(2), || guard.remaining() > LONG).await;
    let waiter = tokio::spawn(async move { south.lock("p", "k").timeout(LONG).acquire().await });
    let is_queued = || secured.server.keys().contains_key("{p:k}:queue");
    eventually("the waiter is queued", Duration::from_secs(2), is_queued).await;
    guard.release().await.unwrap();
    let released = Instant::now();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(released.elapsed() < Duration::from_millis(500), "{:?}", released.elapsed());
    north.shutdown().await;
}

#[tokio::test]
async fn a_cut_connection_over_tls_is_replaced() {
    let secured = Secured::start();
    let manager = secured.manager().await;
    for _ in 0..3 {
        manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
        secured.server.tell("CLIENT KILL TYPE normal");
        secured.server.tell("CLIENT KILL TYPE pubsub");
    }
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused_with_the_remedy() {
    let secured = Secured::start();
    let text = is_refused(&secured.url()).await;
    assert!(text.contains("not trusted") && text.contains("Builder::tls"), "{text}");
    assert!(text.contains("UnknownIssuer"), "the error does not name the cause: {text}");
}

/// The crate `redis` has no way to ask a client for its certificates.
#[tokio::test]
async fn a_client_with_certificates_of_its_own_is_refused_with_the_remedy_and_taken_with_it() {
    let secured = Secured::start();
    let text = LockManager::from_client(secured.client()).await.unwrap_err().to_string();
    assert!(text.contains("rustls::ClientConfig") && text.contains("Builder::tls"), "{text}");
    let manager = secured.builder().client(secured.client()).connect().await.unwrap();
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn the_error_for_an_insecure_url_names_the_alternative() {
    let text = is_refused(&(Secured::start().url() + "/#insecure")).await;
    assert!(text.contains("#insecure") && text.contains("Builder::tls"), "{text}");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let secured = Secured::by(Authority::for_host("somewhere.else"));
    let start = Instant::now();
    let error = secured.builder().connect().await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(2) + NOISE);
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_by_the_given_settings_is_reported() {
    let secured = Secured::start();
    let builder = LockManager::builder().url(&secured.url()).tls(Authority::new().trusted());
    let text = builder.connect().await.unwrap_err().to_string();
    assert!(text.contains("not trusted by the `rustls::ClientConfig`") && !text.contains("SSL_CERT_FILE"), "{text}");
}

#[tokio::test]
async fn an_expired_certificate_is_reported() {
    let secured = Secured::by(Authority::of_the_past());
    let text = secured.builder().connect().await.unwrap_err().to_string();
    assert!(text.contains("out of date") && !text.contains("not trusted"), "{text}");
}

/// No test: a child process whose connections the parent cuts.
#[tokio::test]
async fn client_of_an_authority_that_is_replaced() {
    let Some(url) = child::role() else { return };
    let manager = LockManager::connect(&url).await.unwrap();
    let (before, end) = (manager.stats().reconnects, Instant::now() + LONG);
    child::say("connected");
    while manager.stats().reconnects == before {
        assert!(Instant::now() < end, "it does not connect again");
        if let Ok(guard) = manager.lock("p", "k").timeout(Duration::from_millis(300)).acquire().await {
            drop(guard.release().await);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    child::say("done");
}

#[tokio::test]
async fn an_authority_is_replaced_while_a_process_lives() {
    let secured = Secured::start();
    let roots = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(roots.path(), secured.authority.pem()).unwrap();
    let test = Some("tls::client_of_an_authority_that_is_replaced");
    let mut client = Child::by(child::command(test, &secured.url()).env("SSL_CERT_FILE", roots.path()));
    client.wait_for("connected");
    // First trust both authorities, then the server presents the new certificate, then connections break.
    let next = Authority::new();
    std::fs::write(roots.path(), [secured.authority.pem(), next.pem()].concat()).unwrap();
    next.take_over(&secured.server);
    for kind in ["normal", "pubsub"] {
        secured.server.tell(&format!("CLIENT KILL TYPE {kind}"));
    }
    client.wait_for("done");
}

/// A resolver that presents a certificate, which the test replaces.
#[derive(Debug)]
struct Shows(Mutex<Arc<CertifiedKey>>);

impl Shows {
    fn of(authority: &Authority) -> Arc<CertifiedKey> {
        let [certificate, key] = authority.signed();
        let chain = CertificateDer::pem_file_iter(certificate).unwrap().collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(key).unwrap();
        Arc::new(CertifiedKey::from_der(chain, key, &ring::default_provider()).unwrap())
    }
}

impl ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.lock().unwrap()))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_resolver_shows_another_certificate_at_the_next_connection() {
    let (secured, next) = (Secured::start(), Authority::new());
    secured.server.tell("CONFIG SET tls-auth-clients yes");
    let shows = Arc::new(Shows(Mutex::new(Shows::of(&secured.authority))));
    let mut config = secured.authority.trusted();
    config.client_auth_cert_resolver = Arc::clone(&shows) as Arc<dyn ResolvesClientCert>;
    let builder = LockManager::builder().url(&secured.url()).tls(config);
    let locks = builder.connect().await.unwrap();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    // From now on the server accepts only certificates of the next authority.
    secured.server.tell(&format!("CONFIG SET tls-ca-cert-file {}", next.path().display()));
    let cut = || ["normal", "pubsub"].map(|kind| secured.server.tell(&format!("CLIENT KILL TYPE {kind}")));
    cut();
    locks.lock("p", "other").timeout(Duration::from_millis(300)).acquire().await.unwrap_err();
    *shows.0.lock().unwrap() = Shows::of(&next);
    locks.lock("p", "other").timeout(LONG).acquire().await.unwrap().release().await.unwrap();
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_plain_url_to_a_port_with_tls_gets_a_clear_error() {
    let secured = Secured::start();
    let text = is_refused(&secured.url().replace("rediss://", "redis://")).await;
    assert!(text.contains("rediss://"), "{text}");
}

#[tokio::test]
async fn a_tls_url_to_a_plain_port_gets_a_clear_error() {
    let server = Server::start();
    let text = is_refused(&server.url().replace("redis://", "rediss://")).await;
    assert!(text.contains("TLS"), "{text}");
}

#[tokio::test]
async fn a_tls_url_to_a_closed_port_is_a_refused_connection() {
    let text = is_refused(&format!("rediss://127.0.0.1:{}", free_port())).await;
    assert!(text.contains("connection refused"), "{text}");
}
