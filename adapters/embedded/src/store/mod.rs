//! What the rooms keep, for one process with one folder: the filter's claims and the counters in memory, the archive on
//! disk.

mod archive;
mod counts;
mod dedup;
mod folder;
mod metrics;

pub use archive::RedbArchive;
#[cfg(any(test, feature = "simulation"))]
pub use archive::SimulatedDisk;
pub use counts::MemoryCounts;
pub use dedup::MemoryDedup;
pub use folder::{FORMAT_VERSION, Folder, FolderError};
pub use metrics::described_metrics;
