//! The programs that simulate: the rooms' own tests, optimised, which hear by their environment what to do instead.

use std::env;
use std::fs;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use cargo_metadata::Message;
use onlooker_testkit::java::workspace;

use super::Protocol;

/// A test program.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) protocol: Protocol,
    executable: PathBuf,
}

/// What it is to do.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) seed: u64,
    pub(crate) histories: u64,
    pub(crate) mutation: Option<&'a str>,
    pub(crate) timeline: bool,
}

impl Protocol {
    /// Its crate, and the test that hears.
    fn home(self) -> (&'static str, &'static str) {
        match self {
            Self::Filter => {
                ("onlooker-filter", "heart::sim::every_record_has_the_one_verdict_that_the_log_says")
            }
            Self::Counter => ("onlooker-counter", "simulation::the_protocol_holds"),
        }
    }
}

/// Builds the programs, in this order.
pub(crate) fn build(protocols: &[Protocol]) -> Result<Vec<Program>> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--profile", "simulation", "--lib", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics");
    for protocol in protocols {
        command.args(["--package", protocol.home().0]);
    }
    let mut building = command.current_dir(workspace()).stdout(Stdio::piped()).spawn()?;
    let mut found = Vec::new();
    let output = building.stdout.take().context("cargo has no output")?;
    for message in Message::parse_stream(BufReader::new(output)) {
        if let Message::CompilerArtifact(artifact) = message?
            && let (true, Some(executable)) = (artifact.profile.test, artifact.executable)
        {
            found.push((artifact.target.name.replace('_', "-"), executable.into_std_path_buf()));
        }
    }
    if !building.wait()?.success() {
        bail!("cargo did not build the simulations");
    }
    protocols
        .iter()
        .map(|protocol| {
            let (package, _) = protocol.home();
            let executable = found.iter().find(|(name, _)| name == package).map(|(_, path)| path.clone());
            let executable = executable.with_context(|| format!("cargo built no test of {package}"))?;
            Ok(Program { protocol: *protocol, executable })
        })
        .collect()
}

impl Program {
    /// Asks, and waits for the answer.
    pub(crate) fn ask(&self, request: &Request<'_>) -> Result<String> {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let number = ASKED.fetch_add(1, Ordering::Relaxed);
        let file = env::temp_dir().join(format!("onlooker-simulate-{}-{number}", std::process::id()));
        let mut command = Command::new(&self.executable);
        command.args(["--exact", self.protocol.home().1, "--nocapture"]);
        command.env("SIMULATE", &file).env("RUST_BACKTRACE", "0");
        command.env("SIMULATE_SEED", request.seed.to_string());
        command.env("SIMULATE_HISTORIES", request.histories.to_string());
        if let Some(mutation) = request.mutation {
            command.env("SIMULATE_MUTATION", mutation);
        }
        if request.timeline {
            command.env("SIMULATE_TIMELINE", "1").stdout(Stdio::inherit());
        }
        let done = command.stderr(Stdio::piped()).output()?;
        let answer = fs::read_to_string(&file);
        // Whether it is there or not, nobody needs it any more.
        fs::remove_file(&file).ok();
        if !done.status.success() {
            let (text, errors) =
                (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
            bail!(
                "the simulation of the {} ended with {}:\n{text}{errors}",
                self.protocol.name(),
                done.status
            );
        }
        answer.with_context(|| format!("the simulation of the {} did not answer", self.protocol.name()))
    }
}
