//! Certificates for servers that speak TLS, made by openssl.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::folder::server_folder;
use crate::install;

const CONFIG: &str = "
[req]
distinguished_name = name
prompt = no
[name]
CN = onlooker test
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = DNS:localhost, IP:127.0.0.1
";

/// An authority and a certificate for `localhost` and 127.0.0.1 that it signed, as PEM files.
/// Two values have different authorities, so that one does for a client that trusts the wrong one.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Makes new keys (P-256).
    ///
    /// # Errors
    /// openssl cannot be installed, or fails.
    pub fn make() -> Result<Self> {
        install::ensure(&[install::OPENSSL])?;
        let folder = server_folder("certificates")?;
        let path = folder.path();
        std::fs::write(path.join("openssl.cnf"), CONFIG)?;
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -config openssl.cnf";
        openssl(
            path,
            &format!("req -x509 -days 3650 {key} -extensions authority -keyout ca.key -out ca.pem"),
        )?;
        openssl(path, &format!("req -new {key} -keyout server.key -out server.csr"))?;
        let signed = "-CA ca.pem -CAkey ca.key -CAcreateserial -extfile openssl.cnf -extensions server";
        openssl(path, &format!("x509 -req -days 3650 -in server.csr {signed} -out server.pem"))?;
        let chain = [path.join("server.key"), path.join("server.pem"), path.join("ca.pem")]
            .map(std::fs::read_to_string);
        let [key, certificate, authority] = chain;
        std::fs::write(path.join("keystore.pem"), key? + &certificate? + &authority?)?;
        Ok(Self { folder })
    }

    /// The authority's certificate, for clients to trust.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The server's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("server.pem")
    }

    /// The server's private key (PKCS#8, not encrypted).
    pub fn key(&self) -> PathBuf {
        self.folder.path().join("server.key")
    }

    /// Private key, certificate and authority in one file, as Java servers read it (type `PEM`).
    pub fn keystore(&self) -> PathBuf {
        self.folder.path().join("keystore.pem")
    }
}

fn openssl(folder: &Path, arguments: &str) -> Result<()> {
    let output = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output();
    let output = output.context("cannot run openssl")?;
    if !output.status.success() {
        bail!("openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
