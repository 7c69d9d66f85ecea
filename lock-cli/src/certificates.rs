//! The files of `--cacert`, `--cert` and `--key`.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use lock_runtime::rustls::crypto::ring;
use lock_runtime::rustls::pki_types::pem::PemObject as _;
use lock_runtime::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use lock_runtime::rustls::{ClientConfig, RootCertStore};

use crate::arguments::CertificateArguments;
use crate::failure::Failure;

/// The TLS settings from these files. `None` when no file is given: then the operating system's authorities apply.
pub(crate) fn config(arguments: &CertificateArguments, url: &str) -> Result<Option<ClientConfig>, Failure> {
    let CertificateArguments { cacert, cert, key } = arguments;
    if cacert.is_none() && cert.is_none() {
        return Ok(None);
    }
    if !["rediss", "valkeys", "redlocks"].iter().any(|scheme| url.to_ascii_lowercase().starts_with(scheme)) {
        return Err(Failure::misuse("--cacert, --cert and --key are for TLS: write rediss:// in the URL"));
    }
    let mut roots = RootCertStore::empty();
    let (trusted, option) = match cacert {
        Some(file) => (certificates("--cacert", file)?, format!("--cacert {}", file.display())),
        None => (rustls_native_certs::load_native_certs().certs, "the operating system".to_owned()),
    };
    if roots.add_parsable_certificates(trusted).0 == 0 {
        return Err(Failure::misuse(format!("{option}: it has no certificate of an authority")));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::internal(&error))?
        .with_root_certificates(roots);
    let (Some(cert), Some(key)) = (cert, key) else { return Ok(Some(config.with_no_client_auth())) };
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable("--key", key, &error))?;
    let config = config.with_client_auth_cert(certificates("--cert", cert)?, secret);
    config.map(Some).map_err(|error| unusable("--key", key, &error))
}

fn certificates(option: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let read: Result<Vec<_>, pem::Error> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let found = read.map_err(|error| unusable(option, file, &error))?;
    if found.is_empty() { Err(unusable(option, file, &"it has no certificate in PEM")) } else { Ok(found) }
}

fn unusable(option: &str, file: &Path, problem: &dyn Display) -> Failure {
    Failure::misuse(format!("{option} {}: {problem}", file.display()))
}
