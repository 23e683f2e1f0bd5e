//! Which server stands behind which port. The only place that names a backend.

mod judged;
mod ports;
mod setup;

pub(crate) use ports::{
    collector_log, counter_ports, counts_reader, filter_ports, flusher_ports, watch_log, watch_partitions,
};
pub(crate) use setup::{SchemaArgs, TopicsArgs, schema, topics};

/// The sections of the configuration that the backends themselves define.
pub(crate) mod sections {
    pub(crate) use onlooker_kafka::KafkaConfig;
    pub(crate) use onlooker_redis::RedisConfig;
    pub(crate) use onlooker_scylla::ScyllaConfig;
}
