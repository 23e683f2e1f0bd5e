//! The least that an HTTP server of ours could do: axum reads the body, and answers 202.

use super::Running;
use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use onlooker_testkit::ports::{free_port, is_open};
use std::net::SocketAddr;
use std::time::Duration;

/// Arguments of the peer.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    listen: SocketAddr,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(args.listen).await?;
        let app = Router::new().route("/v1/views", post(take));
        Ok(axum::serve(listener, app).await?)
    })
}

async fn take(_body: Bytes) -> StatusCode {
    StatusCode::ACCEPTED
}

/// Starts it and waits until it listens.
pub(crate) fn start() -> Result<(Running, SocketAddr)> {
    let port = free_port()?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut peer = Running::start("bare axum 202", &["bare".into(), format!("--listen={address}")])?;
    peer.process.wait_ready(Duration::from_secs(20), || is_open(port))?;
    Ok((peer, address))
}
