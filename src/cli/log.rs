//! Sets up the log: human lines or JSON on standard error, never waiting for whoever reads them, and the
//! engine's own lines without query strings.

use std::io::IsTerminal;

use tracing::Dispatch;
use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;

use crate::config::{LogConfig, LogFormat};

/// Starts the log. Lines are written until the guard is dropped.
pub(super) fn start(config: &LogConfig) -> Result<WorkerGuard, String> {
    let (lines, guard) = lines(config)?;
    tracing::dispatcher::set_global_default(lines).map_err(|error| error.to_string())?;
    log::set_max_level(log::LevelFilter::Warn);
    log::set_logger(&EngineLog).map_err(|error| error.to_string())?;
    Ok(guard)
}

/// The audit lines alone, for an order that no gateway carries out: a command may give several, each with its own.
pub(super) fn audit(config: &LogConfig) -> Result<(Dispatch, WorkerGuard), String> {
    lines(&LogConfig { level: "off".to_owned(), ..config.clone() })
}

/// Where lines go, and what keeps them going.
fn lines(config: &LogConfig) -> Result<(Dispatch, WorkerGuard), String> {
    let filter = EnvFilter::try_new(&config.level).map_err(|error| format!("log.level: {error}"))?;
    // However quiet the log is to be: these lines are not for debugging.
    let audit = "deskgate::audit=info".parse().map_err(|error| format!("log.level: {error}"))?;
    let filter = filter.add_directive(audit);
    // A blocked pipe must not hold up requests: lines that do not fit are dropped and counted by the writer.
    let (writer, guard) = tracing_appender::non_blocking(std::io::stderr());
    let json = match config.format {
        LogFormat::Json => true,
        LogFormat::Human => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    };
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines = if json {
        let layer = layer.json().flatten_event(true).with_current_span(false).with_span_list(false);
        Dispatch::new(registry.with(layer))
    } else {
        Dispatch::new(registry.with(layer.with_ansi(std::io::stderr().is_terminal())))
    };
    Ok((lines, guard))
}

/// The engine's lines, cleaned.
struct EngineLog;

impl log::Log for EngineLog {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = without_secrets(&record.args().to_string());
            tracing::warn!(target: "deskgate::engine", from = record.target(), "{line}");
        }
    }

    fn flush(&self) {}
}

/// Cuts queries, which may hold tokens, and raw pieces of heads, which may hold anything.
fn without_secrets(line: &str) -> String {
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
