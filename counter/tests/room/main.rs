//! The room, and the flusher beside it, on the models of their servers.

mod chaos;
mod house;
mod servers;
