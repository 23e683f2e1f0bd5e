//! Kafka's own command-line tools: what others say of a cluster, to be compared with what we say.

use crate::java::{Jvm, Library};
use anyhow::{Context, Result, bail};
use std::process::Command;

const POM: &str = include_str!("../servers/kafka-tools.xml");

/// Runs a tool to its end; its standard output. `main` is the class, such as
/// `org.apache.kafka.tools.consumer.group.ConsumerGroupCommand`.
///
/// # Errors
/// The tools or Java cannot be installed, or the tool fails; the message has what it said.
pub fn run(main: &str, args: &[&str]) -> Result<String> {
    let library = Library::fetch("kafka-tools", POM, |_| Ok(()))?;
    let folder = tempfile::tempdir()?;
    let program =
        library.program("kafka-tools", Jvm::for_test(128), &[], &[&[main], args].concat(), folder.path());
    let mut command = Command::new(&program.executable);
    let output = command.args(&program.args).current_dir(folder.path()).output();
    let output = output.with_context(|| format!("cannot run {}", program.executable.display()))?;
    if !output.status.success() {
        bail!("{main} {args:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).context("no text")
}
