//! At the end of every request: one log line and one set of metrics.

use std::sync::Arc;
use std::time::Duration;

use super::{Arrival, Caller, Gate};
use crate::config::RequestLines;
use crate::endpoints::OwnRoute;
use crate::error::Error;
use crate::metrics::{MethodLabel, RuleMetrics};
use crate::rules::Rule;

/// Metrics of requests that no rule was in charge of.
pub struct OwnMetrics {
    own: RuleMetrics,
    none: RuleMetrics,
    lines: RequestLines,
}

impl OwnMetrics {
    /// Resolves their labels.
    pub fn new(metrics: &crate::metrics::Metrics, lines: RequestLines) -> Self {
        Self { own: metrics.of_rule("(own endpoint)"), none: metrics.of_rule("(no rule)"), lines }
    }
}

/// Who was in charge of a request.
#[derive(Debug, Clone, Default)]
pub enum Handler {
    /// A rule.
    Rule(Arc<Rule>),
    /// One of our endpoints.
    Own(&'static OwnRoute),
    /// Nobody: it was refused before.
    #[default]
    Nobody,
}

/// What entry to a request.
pub struct AccessLogEntry<'a> {
    /// Its id and caller's address.
    pub arrival: &'a Arrival,
    /// Its method.
    pub method: &'a str,
    /// Its path, without the query: that may hold a token.
    pub path: &'a str,
    /// Who was in charge.
    pub handler: &'a Handler,
    /// Who asked.
    pub caller: &'a Caller,
    /// What was answered; 0 if nothing was.
    pub status: u16,
    /// Why it was refused or failed, if it was.
    pub error: Option<&'a Error>,
    /// From the head to the end of the answer.
    pub took: Duration,
    /// How much of that was spent waiting for the upstream.
    pub upstream: Option<Duration>,
}

/// Writes the log line and counts.
pub fn request(gate: &Gate, own: &OwnMetrics, entry: &AccessLogEntry<'_>) {
    let (name, metrics) = match entry.handler {
        Handler::Rule(rule) => (&*rule.name, &rule.metrics),
        Handler::Own(route) => (route.path, &own.own),
        Handler::Nobody => ("-", &own.none),
    };
    metrics.answered(MethodLabel::of(entry.method), entry.status, entry.took.as_secs_f64());
    let ours = entry.took.saturating_sub(entry.upstream.unwrap_or_default());
    gate.metrics.overhead_seconds.observe(ours.as_secs_f64());

    let failed = entry.status >= 500;
    let wanted = entry.error.is_some() || own.lines == RequestLines::All;
    let heard = if failed {
        tracing::enabled!(target: "deskgate::request", tracing::Level::WARN)
    } else {
        tracing::enabled!(target: "deskgate::request", tracing::Level::INFO)
    };
    // Nothing is put into words that nobody reads.
    if wanted && heard {
        write_line(name, entry, failed);
    }
}

/// Tells what a rule or rate in shadow mode would have done, under the request's id.
pub fn shadow(arrival: &Arrival, name: &str, error: &Error) {
    let code = error.code().number();
    tracing::info!(
        target: "deskgate::shadow",
        { request.id = arrival.request_id.as_str(), client.address = %arrival.client, rule.name = name, code = code },
        "would be refused with {code}: {error}"
    );
}

fn write_line(name: &str, entry: &AccessLogEntry<'_>, failed: bool) {
    let employee = match entry.caller {
        Caller::SignedIn(known) => known.session.employee_id.as_str(),
        Caller::Anonymous => "-",
    };
    let duration_ms = entry.took.as_secs_f64() * 1000.0;
    let request_id = entry.arrival.request_id.as_str();
    let (method, path, status) = (shown(entry.method, 16), shown(entry.path, 512), entry.status);
    let (code, line) = match entry.error {
        None if status == 0 => (0, "the client went away before its answer".to_owned()),
        None => (0, "answered".to_owned()),
        Some(error) => {
            let code = error.code().number();
            (code, format!("refused with {code}: {}", shown(&crate::error::chain(error), 512)))
        }
    };
    // `{ … }` around the fields: the macro's own advice for dotted names.
    macro_rules! line {
        ($level:expr) => {
            tracing::event!(
                target: "deskgate::request",
                $level,
                {
                    request.id = request_id,
                    client.address = %entry.arrival.client,
                    employee.id = employee,
                    rule.name = name,
                    http.method = &*method,
                    http.path = &*path,
                    http.status = status,
                    code = code,
                    duration_ms = duration_ms
                },
                "{line}"
            )
        };
    }
    if failed { line!(tracing::Level::WARN) } else { line!(tracing::Level::INFO) }
}

/// Text from outside as a log may show it: cut, and without controls that could forge another line.
pub fn shown(text: &str, longest: usize) -> std::borrow::Cow<'_, str> {
    let plain = text.len() <= longest && text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if plain {
        return text.into();
    }
    text.chars().take(longest).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect::<String>().into()
}
