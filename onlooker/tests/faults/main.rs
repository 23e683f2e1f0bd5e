//! Faults at random moments, under load, singly and several at once; after each round everything is counted exactly once.
//!
//! `cargo x faults` runs as many rounds as one likes; the tests here are a short run with a fixed seed.
#![allow(clippy::unwrap_used, missing_docs)]
#![allow(clippy::duplicate_mod, reason = "both kinds of tests have books and truth")]

#[path = "../embedded/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the tests of one machine")]
mod alone;
#[path = "../e2e/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the tests of a cluster")]
mod support;

mod cluster;
mod folder;
mod proxy;
mod reader;
mod schedule;
mod wish;
