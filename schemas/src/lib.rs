#![doc = include_str!("../README.md")]

pub mod cql;
pub mod topics;
