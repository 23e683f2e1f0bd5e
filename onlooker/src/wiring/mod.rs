//! Which backend stands behind which port. The only place that names one.

#[cfg(feature = "cluster")]
pub(crate) mod cluster;
pub(crate) mod embedded;
mod folder_check;
#[cfg(all(test, feature = "cluster"))]
mod metrics;
#[cfg(feature = "cluster")]
pub(crate) mod moving;

/// The sections of the configuration that the backends themselves define.
#[cfg(feature = "cluster")]
pub(crate) mod sections {
    pub(crate) use onlooker_kafka::KafkaConfig;
    pub(crate) use onlooker_redis::RedisConfig;
    pub(crate) use onlooker_scylla::ScyllaConfig;
}
