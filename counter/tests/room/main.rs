//! The room, and the flusher beside it, on the models of their servers.
#![allow(clippy::unwrap_used)]

mod chaos;
mod house;
mod servers;
