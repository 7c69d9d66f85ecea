//! Locks over TLS, with a server whose certificate an authority of the test's own has signed.

use std::time::{Duration, Instant};

use lock_runtime::{Builder, LockError, LockManager};
use redis::TlsCertificates;
use tests::child::{self, Child};
use tests::patience::{NOISE, eventually};
use tests::server::{Server, free_port};
use tests::tls::{Authority, arguments};

const LONG: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_millis(700);

/// A server with a plain port, for the test itself, and one with TLS.
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

/// The connection is refused, in time; returns what the error says.
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
async fn a_cut_connection_over_tls_is_made_anew() {
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
    assert!(text.contains("UnknownIssuer"), "the cause is not told: {text}");
}

/// The crate tells nobody which certificates a client has.
#[tokio::test]
async fn a_client_with_certificates_of_its_own_is_refused_with_the_remedy_and_taken_with_it() {
    let secured = Secured::start();
    let text = LockManager::from_client(secured.client()).await.unwrap_err().to_string();
    assert!(text.contains("rustls::ClientConfig") && text.contains("Builder::tls"), "{text}");
    let manager = secured.builder().client(secured.client()).connect().await.unwrap();
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn whoever_would_trust_anybody_has_to_say_how() {
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
async fn a_certificate_that_is_not_trusted_by_the_given_settings_is_told_so() {
    let secured = Secured::start();
    let builder = LockManager::builder().url(&secured.url()).tls(Authority::new().trusted());
    let text = builder.connect().await.unwrap_err().to_string();
    assert!(text.contains("not trusted by the `rustls::ClientConfig`") && !text.contains("SSL_CERT_FILE"), "{text}");
}

#[tokio::test]
async fn a_certificate_that_is_over_is_told_so() {
    let secured = Secured::by(Authority::of_the_past());
    let text = secured.builder().connect().await.unwrap_err().to_string();
    assert!(text.contains("out of date") && !text.contains("not trusted"), "{text}");
}

/// Not a test of its own: a client whose connection is cut once it has begun.
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
    // First both are trusted, then the server shows the new one, and then connections break.
    let next = Authority::new();
    std::fs::write(roots.path(), [secured.authority.pem(), next.pem()].concat()).unwrap();
    next.take_over(&secured.server);
    for kind in ["normal", "pubsub"] {
        secured.server.tell(&format!("CLIENT KILL TYPE {kind}"));
    }
    client.wait_for("done");
}

#[tokio::test]
async fn a_plain_url_to_a_port_with_tls_is_told_so() {
    let secured = Secured::start();
    let text = is_refused(&secured.url().replace("rediss://", "redis://")).await;
    assert!(text.contains("rediss://"), "{text}");
}

#[tokio::test]
async fn a_tls_url_to_a_plain_port_is_told_so() {
    let server = Server::start();
    let text = is_refused(&server.url().replace("redis://", "rediss://")).await;
    assert!(text.contains("TLS"), "{text}");
}

#[tokio::test]
async fn a_tls_url_to_nobody_is_a_refused_connection() {
    let text = is_refused(&format!("rediss://127.0.0.1:{}", free_port())).await;
    assert!(text.contains("connection refused"), "{text}");
}
