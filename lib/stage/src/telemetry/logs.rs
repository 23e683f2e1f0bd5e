//! Log lines: to a person on a terminal, as JSON to everybody else; always to standard error.

use std::io::IsTerminal;

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::SubscriberInitExt;

/// How a log line looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Human on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// One line of text, coloured on a terminal unless `NO_COLOR` is set.
    Human,
    /// One JSON object a line, the event's fields at its top level, times in UTC.
    Json,
}

/// What to log and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// How a line looks.
    pub format: LogFormat,
    /// A level, or directives as in `info,onlooker_filter=debug`.
    pub level: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Auto, level: "info".into() }
    }
}

/// Why logging did not start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The level is neither a level nor a list of directives.
    #[error("log level {level:?} is not understood")]
    Level {
        /// As configured.
        level: String,
        /// What is wrong with it.
        source: ParseError,
    },
    /// The process logs already.
    #[error("logging was started before")]
    Started,
}

/// Starts logging for the whole process, panics included.
///
/// # Errors
/// [`LogError`]; nothing has changed then.
pub fn init_logs(config: &LogConfig) -> Result<(), LogError> {
    let filter = filter(&config.level)?;
    let terminal = std::io::stderr().is_terminal();
    let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if human(config.format, terminal) {
        let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        base.with_ansi(colour).finish().try_init()
    } else {
        base.json().flatten_event(true).with_current_span(false).with_span_list(false).finish().try_init()
    };
    started.map_err(|_| LogError::Started)?;
    // A panic in a task would otherwise be a few lines of text among the JSON.
    std::panic::set_hook(Box::new(|info| {
        let message = crate::supervisor::panic_message(info.payload());
        let location = info.location().map(ToString::to_string);
        tracing::error!(message, location, thread = std::thread::current().name(), "panicked");
    }));
    Ok(())
}

fn human(format: LogFormat, terminal: bool) -> bool {
    match format {
        LogFormat::Auto => terminal,
        LogFormat::Human => true,
        LogFormat::Json => false,
    }
}

fn filter(level: &str) -> Result<EnvFilter, LogError> {
    EnvFilter::builder().parse(level).map_err(|source| LogError::Level { level: level.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_follows_the_terminal() {
        let table = [
            (LogFormat::Auto, true, true),
            (LogFormat::Auto, false, false),
            (LogFormat::Human, false, true),
            (LogFormat::Json, true, false),
        ];
        for (format, terminal, expected) in table {
            assert_eq!(human(format, terminal), expected, "{format:?} {terminal}");
        }
    }

    #[test]
    fn a_level_is_checked() {
        for level in ["info", "WARN", "info,onlooker_filter=debug"] {
            assert!(filter(level).is_ok(), "{level}");
        }
        for level in ["onlooker=loud", "info,=x=y"] {
            let error = filter(level).unwrap_err().to_string();
            assert!(error.contains(level), "{error}");
        }
    }
}
