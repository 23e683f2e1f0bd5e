//! A file system that can be filled.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system in memory, taken away again at the end.
pub(crate) struct Disk(pub(crate) PathBuf);

impl Disk {
    /// None, with a printed reason, where mounting is not allowed.
    pub(crate) fn mount(at: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let options = format!("size={size}");
        let output = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at).output();
        match output {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            Ok(output) => {
                eprintln!("skipped: mount says {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                eprintln!("skipped: mount cannot be run: {error}");
                None
            }
        }
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Takes all room that is left.
    pub(crate) fn fill(&self) {
        let mut file = std::fs::File::create(self.ballast()).unwrap();
        // Large pieces, then small ones.
        for piece in [1 << 20, 4096] {
            let zeros = vec![0; piece];
            while file.write_all(&zeros).is_ok() {}
        }
    }

    pub(crate) fn make_room(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
