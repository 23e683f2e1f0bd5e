#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod group;
mod heart;
mod known;
mod plan;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod testing;
