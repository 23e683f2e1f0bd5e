//! Kafka, Redis, and Cassandra or ScyllaDB.

mod carry;
mod judged;
mod ports;
mod setup;

pub(crate) use carry::ClusterPlace;
pub(crate) use ports::{
    collector_log, counter_ports, counts_reader, filter_ports, flusher_ports, watch_log, watch_partitions,
};
pub(crate) use setup::{SchemaArgs, TopicsArgs, schema, topics};
