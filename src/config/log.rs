//! `[log]`

use serde::{Deserialize, Serialize};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people on a terminal, JSON elsewhere.
    Auto,
    /// For people.
    Human,
    /// One JSON object per line.
    Json,
}

/// Which requests get a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestLines {
    /// Every request.
    All,
    /// Those that were refused or failed.
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
    /// `all` requests get a line, or only `refused` ones.
    pub requests: RequestLines,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Auto, level: "info".to_owned(), requests: RequestLines::All }
    }
}
