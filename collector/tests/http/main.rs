//! The collector seen from the wire, over real sockets, in front of a log that does what the test says.
#![allow(clippy::unwrap_used, missing_docs)]

mod bodies;
mod browsers;
mod identity;
mod log;
mod script;
mod support;
mod time;
mod traces;
