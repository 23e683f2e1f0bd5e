//! `cargo x beacon`: the script that pages load, tried in a real browser against the program.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use clap::Args;
use onlooker_testkit::install::{self, Tool};
use onlooker_testkit::java::workspace;

use crate::commands::{FEATURES, cargo, run as carry_out, target_folder};

const TOOLS: [Tool; 3] = [
    Tool { executable: "chromium", package: "chromium" },
    Tool { executable: "node", package: "nodejs" },
    Tool { executable: "npm", package: "npm" },
];
/// What playwright-core asks for; an older one fails with a syntax error that names nothing.
const OLDEST_NODE: u32 = 20;

#[derive(Debug, Args)]
pub(crate) struct Beacon {
    /// Builds dist/view.js, which the program has in it, instead of testing
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(beacon: &Beacon) -> Result<()> {
    packages()?;
    if beacon.write {
        return npm(&["run", "build"]);
    }
    install::for_builds()?;
    cargo(&["build", "--package", "onlooker", "--features", FEATURES])?;
    test()
}

/// Tests with the program as it was built last.
pub(crate) fn test() -> Result<()> {
    packages()?;
    npm(&["run", "check"])?;
    npm(&["test"])
}

/// Makes sure that browser and packages are there.
fn packages() -> Result<()> {
    install::ensure(&TOOLS)?;
    let version = Command::new("node").arg("--version").output().context("cannot run node")?;
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    if major(&version).is_none_or(|major| major < OLDEST_NODE) {
        bail!("node {version} is too old for the tests in a browser, which need {OLDEST_NODE}");
    }
    let written = |file: &str| -> Option<SystemTime> {
        fs::metadata(workspace().join("beacon").join(file)).and_then(|found| found.modified()).ok()
    };
    // npm leaves a copy of the lock file where it has installed all of it.
    if written("node_modules/.package-lock.json") < written("package-lock.json") {
        npm(&["ci"])?;
    }
    Ok(())
}

fn major(version: &str) -> Option<u32> {
    version.strip_prefix('v')?.split('.').next()?.parse().ok()
}

fn npm(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("npm");
    command.arg("--prefix").arg(Path::new("beacon")).args(arguments);
    command.env("ONLOOKER_BIN", target_folder()?.join("debug/onlooker"));
    carry_out(command)
}

#[cfg(test)]
mod tests {
    use super::major;

    #[test]
    fn a_version_of_node_is_read() {
        assert_eq!(major("v20.20.2"), Some(20));
        assert_eq!(major(""), None);
    }
}
