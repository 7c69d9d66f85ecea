//! [`Authority`]: signs the certificates of a test's servers.

use std::path::PathBuf;
use std::sync::Arc;

use lock_runtime::rustls::crypto::ring;
use lock_runtime::rustls::pki_types::CertificateDer;
use lock_runtime::rustls::pki_types::pem::PemObject;
use lock_runtime::rustls::{ClientConfig, RootCertStore};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::server::Server;

/// A certificate authority that no system trusts, and a certificate for one host. Dropping it deletes the files.
#[derive(Debug)]
pub struct Authority {
    pem: String,
    folder: tempfile::TempDir,
}

impl Authority {
    /// For servers that clients reach by IP address.
    #[must_use]
    pub fn new() -> Self {
        Self::for_host("127.0.0.1")
    }

    /// For servers that clients reach as `host`.
    #[must_use]
    pub fn for_host(host: &str) -> Self {
        Self::signing(host, |_| {})
    }

    /// [`new`](Self::new) with an expired server certificate.
    #[must_use]
    pub fn of_the_past() -> Self {
        Self::signing("127.0.0.1", |params| params.not_after = rcgen::date_time_ymd(2001, 1, 1))
    }

    fn signing(host: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names to be wrong");
        // Two names, because OpenSSL takes a certificate for its own issuer if both have the same name.
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

    /// The authority's own certificate.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// TLS settings that trust only certificates of this authority.
    #[must_use]
    pub fn trusted(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("a certificate")).expect("an authority");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().expect("the versions of TLS");
        config.with_root_certificates(roots).with_no_client_auth()
    }

    /// The file with the authority's own certificate.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.file("authority")
    }

    /// The files of the signed certificate and of its key, for servers and clients.
    #[must_use]
    pub fn signed(&self) -> [PathBuf; 2] {
        ["server", "key"].map(|name| self.file(name))
    }

    /// Options that make a server also speak TLS on `port`.
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

    /// Makes a running TLS server present this authority's certificate from now on.
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

/// Turns options into command line arguments.
#[must_use]
pub fn arguments(options: &[(&'static str, String)]) -> Vec<String> {
    options.iter().flat_map(|(name, value)| [format!("--{name}"), value.clone()]).collect()
}
