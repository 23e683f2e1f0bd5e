//! What was found about one thing, for `status` and `check`.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    Ok,
    /// Works, and should be looked at.
    Warning,
    /// Contradicts what counting rests on.
    Refused,
    /// Does not answer.
    Down,
}

/// One line of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    /// A server, a topic, a group, a room; or what of it.
    pub(crate) subject: String,
    pub(crate) detail: String,
}

impl Finding {
    pub(crate) fn new(level: Level, subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { level, subject: subject.into(), detail: detail.into() }
    }
}

/// How long a part of an answer may take: within 5 s people are told what does not answer.
const PATIENCE: Duration = Duration::from_millis(4_500);

/// Waits for a server's answer for a moment only.
pub(crate) async fn in_time<T, E: std::fmt::Display>(
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => answer.map_err(|error| format!("{error:#}")),
        Err(_) => Err(format!("no answer within {:.1} s", PATIENCE.as_secs_f64())),
    }
}

/// `12.3 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (n.max(1).ilog2() / 10).min(4);
    let whole = n >> (10 * unit);
    let tenths = (n >> (10 * unit.saturating_sub(1)) & 1_023) * 10 / 1_024;
    let name = units.get(unit as usize).copied().unwrap_or_default();
    if unit == 0 { format!("{whole} {name}") } else { format!("{whole}.{tenths} {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let told = [0, 1_023, 1_024, 1_536, 5 << 30, 3 << 50].map(bytes);
        assert_eq!(told, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 GiB", "3072.0 TiB"]);
    }
}
