//! What a folder and its disk are, as an operator is told.

use super::embedded::FolderSight;
use crate::ops::{Finding, Level, bytes};
use onlooker_embedded::log::Durability;
use std::path::Path;

/// Room on the disk below which an operator is told, and below which it is about to end.
const LITTLE_BYTES: u64 = 2 << 30;
const NONE_BYTES: u64 = 256 << 20;

/// The folder, which answers because it is open.
pub(super) fn servers(folder: &FolderSight) -> Vec<Finding> {
    let path = folder.path.display().to_string();
    vec![Finding::new(Level::Ok, "folder", format!("{path}, log {}", folder.generation)), disk(&folder.path)]
}

/// What should be looked at.
pub(super) fn settings(folder: &FolderSight) -> Vec<Finding> {
    // Whoever answers has it open, which refuses another process's lock and another version's format.
    let held = format!("process {} has it, and its format is known", std::process::id());
    let (level, detail) = match folder.durability {
        Durability::Power => (Level::Ok, "power: what was acknowledged survives the loss of power"),
        Durability::Process => {
            (Level::Warning, "process: the last seconds of what was acknowledged go with the power")
        }
    };
    vec![
        Finding::new(Level::Ok, "folder", held),
        Finding::new(level, "embedded.log.durability", detail),
        disk(&folder.path),
    ]
}

fn disk(path: &Path) -> Finding {
    match rustix::fs::statvfs(path) {
        Err(error) => Finding::new(Level::Warning, "disk", format!("cannot be asked for its room: {error}")),
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            let all = found.f_blocks.saturating_mul(found.f_frsize);
            of_room(free, all)
        }
    }
}

fn of_room(free: u64, all: u64) -> Finding {
    let detail = format!("{} of {} are free", bytes(free), bytes(all));
    let level = match free {
        free if free < NONE_BYTES => Level::Refused,
        free if free < LITTLE_BYTES => Level::Warning,
        _ => Level::Ok,
    };
    Finding::new(level, "disk", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_told_before_it_is_full() {
        let level = |free| of_room(free, 1 << 40).level;
        assert_eq!(level(NONE_BYTES - 1), Level::Refused);
        assert_eq!(level(NONE_BYTES), Level::Warning);
        assert_eq!(level(LITTLE_BYTES), Level::Ok);
    }
}
