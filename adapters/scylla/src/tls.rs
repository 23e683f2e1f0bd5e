//! Encryption of the driver's connections.

use crate::config::{ConfigError, TlsConfig};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;

/// Reads the files of the TLS section. Only the authorities that it names are trusted, not the system's.
pub(crate) fn client_config(tls: &TlsConfig) -> Result<Arc<ClientConfig>, ConfigError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&tls.ca_file)? {
        roots.add(certificate).map_err(|e| fault(&tls.ca_file, e))?;
    }
    // The provider is named, since more than one may be linked into the executable.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| fault(&tls.ca_file, e))?
        .with_root_certificates(roots);
    let config = match (&tls.cert_file, &tls.key_file) {
        (Some(cert_file), Some(key_file)) => {
            let key = PrivateKeyDer::from_pem_file(key_file).map_err(|e| fault(key_file, e))?;
            builder.with_client_auth_cert(certificates(cert_file)?, key).map_err(|e| fault(cert_file, e))?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let read = CertificateDer::pem_file_iter(file).map_err(|e| fault(file, e))?;
    let all = read.collect::<Result<Vec<_>, _>>().map_err(|e| fault(file, e))?;
    if all.is_empty() {
        return Err(fault(file, "holds no certificate"));
    }
    Ok(all)
}

fn fault(file: &Path, problem: impl std::fmt::Display) -> ConfigError {
    ConfigError::Tls { file: file.display().to_string(), problem: problem.to_string() }
}
