//! Sets the log up: text or JSON lines on standard error, written by a thread of their own so that a slow reader never
//! blocks a request. Pingora's own lines are included, without query strings.

use std::io::IsTerminal;

use tracing::Dispatch;
use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;

use crate::config::{LogConfig, LogFormat};

/// Starts the log of the process. Dropping the guard writes the remaining lines and ends it.
pub(super) fn start(config: &LogConfig) -> Result<WorkerGuard, String> {
    let (subscriber, guard) = subscriber(config)?;
    tracing::dispatcher::set_global_default(subscriber).map_err(|error| error.to_string())?;
    log::set_max_level(log::LevelFilter::Warn);
    log::set_logger(&PingoraLog).map_err(|error| error.to_string())?;
    Ok(guard)
}

/// Starts a log of audit records only, for a command that runs without a gateway. Not global: a CLI call may execute
/// several commands, each with its own.
pub(super) fn audit(config: &LogConfig) -> Result<(Dispatch, WorkerGuard), String> {
    subscriber(&LogConfig { level: "off".to_owned(), ..config.clone() })
}

fn subscriber(config: &LogConfig) -> Result<(Dispatch, WorkerGuard), String> {
    let invalid = |error: &dyn std::fmt::Display| format!("log.level: {:?} is not a log filter: {error}", config.level);
    let filter = EnvFilter::try_new(&config.level).map_err(|error| invalid(&error))?;
    // Audit records are written at every log level.
    let filter = filter.add_directive("deskgate::audit=info".parse().map_err(|error| invalid(&error))?);
    // When the pipe is blocked, the writer drops lines and counts them.
    let (writer, guard) = tracing_appender::non_blocking(std::io::stderr());
    let json = match config.format {
        LogFormat::Json => true,
        LogFormat::Human => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    };
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    let subscriber = if json {
        let layer = layer.json().flatten_event(true).with_current_span(false).with_span_list(false);
        Dispatch::new(registry.with(layer))
    } else {
        Dispatch::new(registry.with(layer.with_ansi(std::io::stderr().is_terminal())))
    };
    Ok((subscriber, guard))
}

/// Forwards Pingora's log lines with secrets removed.
struct PingoraLog;

impl log::Log for PingoraLog {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = redact(&record.args().to_string());
            tracing::warn!(target: "deskgate::engine", from = record.target(), "{line}");
        }
    }

    fn flush(&self) {}
}

/// Removes query strings, which may hold tokens, and raw parts of heads, which may hold anything.
fn redact(line: &str) -> String {
    let line = line.split("buf:").next().unwrap_or_default();
    let mut clean = String::with_capacity(line.len());
    let mut in_query = false;
    for c in line.chars() {
        match c {
            '?' => {
                in_query = true;
                clean.push_str("?…");
            }
            c if in_query && (c.is_whitespace() || c == ',') => {
                in_query = false;
                clean.push(c);
            }
            _ if in_query => {}
            c if c.is_control() => clean.push('\u{fffd}'),
            c => clean.push(c),
        }
    }
    clean
}

#[cfg(test)]
mod tests;
