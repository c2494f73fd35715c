//! Sets the log up: text or JSON lines on standard error, written by a thread of their own so that a slow reader never
//! blocks a request. Pingora's own lines are included, without query strings.

use std::io::{IsTerminal, Write};

use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Subscriber};
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::app::{AuditQueue, AuditStream, AuditWriter, LogStreams, Rotation};
use crate::config::{Config, LogConfig, LogFormat};

/// How many lines wait for a slow reader; more are dropped and counted. Bounds the memory that they take to some 16 MiB.
const QUEUED_LINES: usize = 8 * 1024;

/// The target of audit records.
const AUDIT: &str = "deskgate::audit";

/// Keeps the log going. Dropping it writes the remaining lines.
pub(super) struct LogGuard {
    _writers: Vec<WorkerGuard>,
}

/// Starts the log of the process.
pub(super) fn start(config: &Config) -> Result<(LogStreams, LogGuard), String> {
    let (subscriber, streams, guard) = subscriber(config, &config.log, Rotation::BySize)?;
    tracing::dispatcher::set_global_default(subscriber).map_err(|error| error.to_string())?;
    log::set_max_level(log::LevelFilter::Warn);
    log::set_logger(&PingoraLog).map_err(|error| error.to_string())?;
    Ok((streams, guard))
}

/// Starts a log of audit records only, for a command that runs without a gateway. Not global: a CLI call may execute
/// several commands, each with its own.
pub(super) fn audit(config: &Config) -> Result<(Dispatch, LogGuard), String> {
    let log = LogConfig { level: "off".to_owned(), ..config.log.clone() };
    let (subscriber, _, guard) = subscriber(config, &log, Rotation::Never)?;
    Ok((subscriber, guard))
}

fn subscriber(
    config: &Config,
    log: &LogConfig,
    rotation: Rotation,
) -> Result<(Dispatch, LogStreams, LogGuard), String> {
    let audit = AuditStream::open(&config.audit, &config.server.data_dir, rotation)?;
    let invalid = |error: &dyn std::fmt::Display| format!("log.level: {:?} is not a log filter: {error}", log.level);
    let filter = EnvFilter::try_new(&log.level).map_err(|error| invalid(&error))?;
    // Audit records are written at every log level, and once.
    let level = if audit.is_some() { LevelFilter::OFF } else { LevelFilter::INFO };
    let filter = filter.add_directive(format!("{AUDIT}={level}").parse().map_err(|error| invalid(&error))?);
    let (writer, guard) = queue(std::io::stderr());
    let lines = Some(writer.error_counter());
    let Some(stream) = audit else {
        let subscriber = tracing_subscriber::registry().with(filter).with(line_layer(log, writer));
        let guard = LogGuard { _writers: vec![guard] };
        return Ok((Dispatch::new(subscriber), LogStreams { lines, audit: None }, guard));
    };
    let (audit_writer, audit_guard) = queue(AuditWriter(stream.clone()));
    let audit = Some(AuditQueue { stream, queue: audit_writer.error_counter() });
    let records = json_layer(audit_writer).with_filter(Targets::new().with_target(AUDIT, LevelFilter::INFO));
    let subscriber = tracing_subscriber::registry().with(line_layer(log, writer).with_filter(filter)).with(records);
    let guard = LogGuard { _writers: vec![guard, audit_guard] };
    Ok((Dispatch::new(subscriber), LogStreams { lines, audit }, guard))
}

/// A thread of its own that writes lines, so that a slow reader never blocks a request.
fn queue(writer: impl Write + Send + 'static) -> (NonBlocking, WorkerGuard) {
    NonBlockingBuilder::default().buffered_lines_limit(QUEUED_LINES).lossy(true).finish(writer)
}

fn line_layer<S>(config: &LogConfig, writer: NonBlocking) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let is_terminal = std::io::stderr().is_terminal();
    match config.format {
        LogFormat::Auto if is_terminal => tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(true).boxed(),
        LogFormat::Human => tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(is_terminal).boxed(),
        LogFormat::Auto | LogFormat::Json => json_layer(writer),
    }
}

fn json_layer<S>(writer: NonBlocking) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).json();
    layer.flatten_event(true).with_current_span(false).with_span_list(false).boxed()
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
