//! `[log]`: format, level and which requests are logged.

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

use super::Faults;

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// Text.
    Human,
    /// One JSON object per line.
    Json,
}

/// Which requests are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestLines {
    /// Every request.
    All,
    /// Refused and failed requests.
    Refused,
}

/// `[log]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// `auto`, `human` or `json`.
    pub format: LogFormat,
    /// `error`, `warn`, `info`, `debug` or `trace`, or a filter such as `info,deskgate=debug`.
    pub level: String,
    /// `all` requests, or only `refused` and failed ones.
    pub requests: RequestLines,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Auto, level: "info".to_owned(), requests: RequestLines::All }
    }
}

impl LogConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        if let Err(error) = EnvFilter::try_new(&self.level) {
            faults.add("log.level", format!("{:?} is not a log level or filter: {error}", self.level));
        }
    }
}
