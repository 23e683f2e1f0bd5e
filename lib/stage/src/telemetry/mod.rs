//! Logs and metrics of the process.

mod logs;
mod metric;
mod process;
mod recorder;

pub use logs::{LogConfig, LogError, LogFormat, init_logs};
pub(crate) use metric::series;
pub use metric::{Counter, Family, Gauge, Histogram, Metric, PartitionGauge};
pub use recorder::{LATENCY_BUCKETS_S, MetricsError, MetricsHandle, init_metrics};
