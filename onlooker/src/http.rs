//! The commands' HTTP client.

use anyhow::Result;
use std::time::Duration;

/// A client whose requests may take so long, answer included.
pub(crate) fn client(timeout: Duration) -> Result<reqwest::Client> {
    // Fails only if it was done before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(reqwest::Client::builder().timeout(timeout).build()?)
}
