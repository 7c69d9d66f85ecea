//! [`Authority`]: signs the certificates of a test's own servers.

use std::path::PathBuf;
use std::sync::Arc;

use lock_runtime::rustls::crypto::ring;
use lock_runtime::rustls::pki_types::CertificateDer;
use lock_runtime::rustls::pki_types::pem::PemObject;
use lock_runtime::rustls::{ClientConfig, RootCertStore};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::server::Server;

/// An authority that nobody knows, and a certificate for one host; gone with the test.
#[derive(Debug)]
pub struct Authority {
    pem: String,
    folder: tempfile::TempDir,
}

impl Authority {
    /// For servers that are called by their address.
    #[must_use]
    pub fn new() -> Self {
        Self::for_host("127.0.0.1")
    }

    /// For servers that are called `host`.
    #[must_use]
    pub fn for_host(host: &str) -> Self {
        Self::signing(host, |_| {})
    }

    /// As [`new`](Self::new), of a server whose certificate is over.
    #[must_use]
    pub fn of_the_past() -> Self {
        Self::signing("127.0.0.1", |params| params.not_after = rcgen::date_time_ymd(2001, 1, 1))
    }

    fn signing(host: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names to be wrong");
        // OpenSSL takes a certificate for its own issuer when both have one name.
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("a host");
        change(&mut params);
        let certificate = params.signed_by(&key, &issuer).expect("a certificate").pem();
        let authority = Self { pem, folder: tempfile::tempdir().expect("a temporary folder") };
        for (name, text) in [("authority", &authority.pem), ("server", &certificate), ("key", &key.serialize_pem())] {
            std::fs::write(authority.file(name), text).expect("a file in the own folder");
        }
        authority
    }

    /// Its own certificate.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// How to speak TLS to servers that it has signed for, and to no others.
    #[must_use]
    pub fn trusted(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("a certificate")).expect("an authority");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().expect("the versions of TLS");
        config.with_root_certificates(roots).with_no_client_auth()
    }

    /// The file with its own certificate.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.file("authority")
    }

    /// What makes a server speak TLS on `port`, beside what it speaks on its own.
    #[must_use]
    pub fn options(&self, port: u16) -> Vec<(&'static str, String)> {
        let file = |name| self.file(name).to_str().expect("a path in UTF-8").to_owned();
        vec![
            ("tls-port", port.to_string()),
            ("tls-cert-file", file("server")),
            ("tls-key-file", file("key")),
            ("tls-ca-cert-file", file("authority")),
            ("tls-auth-clients", "no".to_owned()),
        ]
    }

    /// Has a server that speaks TLS show the certificate of this authority from now on.
    pub fn take_over(&self, server: &Server) {
        let options = self.options(0).into_iter().filter(|(name, _)| name.ends_with("-file"));
        let words: Vec<_> = options.map(|(name, value)| format!("{name} {value}")).collect();
        server.tell(&format!("CONFIG SET {}", words.join(" ")));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.pem"))
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

/// Options as arguments.
#[must_use]
pub fn arguments(options: &[(&'static str, String)]) -> Vec<String> {
    options.iter().flat_map(|(name, value)| [format!("--{name}"), value.clone()]).collect()
}
