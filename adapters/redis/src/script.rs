//! Lua scripts, called by their hash.

use std::sync::OnceLock;

use redis::Cmd;

/// A script's text and, once it was needed, its hash.
pub(crate) struct Script {
    source: &'static str,
    hash: OnceLock<String>,
}

impl Script {
    pub(crate) const fn new(source: &'static str) -> Self {
        Self { source, hash: OnceLock::new() }
    }

    /// The beginning of a call: the keys are in, the arguments follow.
    pub(crate) fn call(&self, keys: &[&[u8]]) -> Cmd {
        let hash = self.hash.get_or_init(|| redis::Script::new(self.source).get_hash().to_owned());
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(hash).arg(keys.len());
        for key in keys {
            command.arg(*key);
        }
        command
    }

    pub(crate) fn load(&self) -> Cmd {
        let mut command = Cmd::new();
        command.arg("SCRIPT").arg("LOAD").arg(self.source);
        command
    }
}
