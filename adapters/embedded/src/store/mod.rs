//! What the rooms keep, for one process with one folder: the filter's claims and the counters in memory, the archive on
//! disk.

mod folder;

pub use folder::{FORMAT_VERSION, Folder, FolderError};
