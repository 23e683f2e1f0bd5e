//! Logs and metrics of the process.

mod described;
mod logs;
mod metric;
mod process;
mod progress;
mod recorder;

pub use described::{Described, Kind, Labels, described_metrics};
pub use logs::{LogConfig, LogError, LogFormat, init_logs};
pub(crate) use metric::series;
pub use metric::{Counter, Family, Gauge, Histogram, Metric, PartitionGauge};
pub use progress::Progress;
pub use recorder::{LATENCY_BUCKETS_S, MetricsError, MetricsHandle, init_metrics};
