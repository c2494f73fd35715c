//! `[log]`: format, level and which requests are logged.

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

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
        if let Some(word) = self.level.split(',').find(|directive| is_unknown_word(directive)) {
            let why = "write \"error\", \"warn\", \"info\", \"debug\", \"trace\" or \"off\", or a filter such as \
                       \"info,deskgate=debug\"";
            faults.add("log.level", format!("{word:?} is not a log level; {why}"));
        } else if let Err(error) = EnvFilter::try_new(&self.level) {
            faults.add("log.level", format!("{:?} is not a log level or filter: {error}", self.level));
        }
    }
}

/// Whether a directive is a single word and not a level. The filter would take it for a target and log nothing else.
fn is_unknown_word(directive: &str) -> bool {
    !directive.contains(['=', '[']) && (directive.is_empty() || directive.parse::<LevelFilter>().is_err())
}
