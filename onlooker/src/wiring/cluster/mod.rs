//! Kafka, Redis, and Cassandra or ScyllaDB.

mod carry;
mod check;
mod judged;
mod ports;
mod setup;
mod sight;

pub(crate) use carry::ClusterPlace;
pub(crate) use ports::{
    collector_log, counter_ports, counts_reader, filter_ports, flusher_ports, watch_log, watch_partitions,
};
pub(crate) use setup::{SchemaArgs, TopicsCommand, schema, topics};
pub(crate) use sight::ClusterSight;
