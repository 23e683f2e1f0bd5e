//! What the client measures.

use onlooker_stage::telemetry::{Counter, Described, Family, Gauge, Histogram};

use crate::client::Role;

onlooker_stage::metrics! {
    /// Of the clients of this process, by server.
    pub(crate) struct ClientMetrics {
        /// Connections to Redis that were made, by server
        pub(crate) connected: Family<Role, Counter> =
            "onlooker_redis_connections_total", "server" in Role::ALL as Role::label;
        /// Attempts to connect to Redis that failed, by server
        pub(crate) unreachable: Family<Role, Counter> =
            "onlooker_redis_failed_connections_total", "server" in Role::ALL as Role::label;
        /// Commands that Redis did not answer in time, by server
        pub(crate) timed_out: Family<Role, Counter> =
            "onlooker_redis_timeouts_total", "server" in Role::ALL as Role::label;
        /// Commands that Redis refused for lack of memory, by server
        pub(crate) refused: Family<Role, Counter> =
            "onlooker_redis_full_total", "server" in Role::ALL as Role::label;
        /// Bytes that Redis uses, of all masters together, by server; asked for now and then by filters and counters
        pub(crate) used: Family<Role, Gauge> =
            "onlooker_redis_used_memory_bytes", "server" in Role::ALL as Role::label;
        /// Bytes that Redis may use (maxmemory), of all masters together, by server. 0: no limit
        pub(crate) limit: Family<Role, Gauge> =
            "onlooker_redis_max_memory_bytes", "server" in Role::ALL as Role::label;
        /// Keys that Redis evicted since its start, of all masters together, by server
        pub(crate) evicted: Family<Role, Gauge> =
            "onlooker_redis_evicted_keys", "server" in Role::ALL as Role::label;
        /// Time from sending commands to Redis to their answers, in seconds, by server
        pub(crate) duration: Family<Role, Histogram> =
            "onlooker_redis_seconds", "server" in Role::ALL as Role::label;
    }
}

/// What the clients of Redis measure, for the table of all metrics.
pub fn described_metrics() -> Vec<Described> {
    ClientMetrics::described()
}
