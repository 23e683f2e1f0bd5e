//! Everything in one process over one folder, seen from outside: requests go in over HTTP, and what is checked is what
//! comes back over HTTP and what lies in the folder.
#![allow(clippy::unwrap_used, missing_docs)]

mod commands;
mod full_disk;
mod kills;
mod logs;
mod memory;
mod ops;
mod ops_dead;
mod ops_ledger;
mod ops_records;
mod ops_verify;
mod power;
mod replays;
#[cfg(feature = "otel")]
mod spans;
mod starts;
mod support;
mod swaps;
mod tampering;
mod traces;
