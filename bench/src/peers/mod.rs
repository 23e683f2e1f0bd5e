//! What ours is compared with, each a process of its own: this executable under another name.

pub(crate) mod bare;
pub(crate) mod direct;

use crate::meter::Watched;
use anyhow::Result;
use clap::Subcommand;
use onlooker_testkit::process::{Process, Program};
use tempfile::TempDir;

/// The peers, as arguments of this executable.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Peer {
    /// Reads every request's body and answers 202
    Bare(bare::Args),
    /// Consumes `views` and writes to Redis, command by command or in pipelines
    Direct(direct::Args),
}

impl Peer {
    /// Runs it; it ends when it is killed.
    pub(crate) fn run(&self) -> Result<()> {
        match self {
            Peer::Bare(args) => bare::run(args),
            Peer::Direct(args) => direct::run(args),
        }
    }
}

/// A peer that runs; it is killed when the value is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    name: &'static str,
    /// Its process.
    pub(crate) process: Process,
    _folder: TempDir,
}

impl Running {
    /// Starts this executable as a peer.
    pub(crate) fn start(name: &'static str, args: &[String]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let program = Program {
            name: name.to_owned(),
            executable: std::env::current_exe()?.into(),
            args: ["peer".into()].into_iter().chain(args.iter().map(Into::into)).collect(),
            folder: folder.path().to_owned(),
            log: folder.path().join("peer.log"),
        };
        Ok(Self { name, process: program.start()?, _folder: folder })
    }

    /// For a meter.
    pub(crate) fn watched(&self) -> Watched {
        Watched { name: self.name, pid: self.process.pid() }
    }
}
