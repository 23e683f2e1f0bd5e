//! The whole system on real Kafka, Redis and Cassandra, seen from outside: requests go in over HTTP, and what is checked
//! is what the servers hold.
#![allow(clippy::unwrap_used, missing_docs)]

mod carry;
mod dashboard;
mod doors;
mod faults;
mod flows;
mod lag;
mod logs;
mod ops;
mod replays;
mod reports;
mod support;
mod swaps;
mod tampering;
