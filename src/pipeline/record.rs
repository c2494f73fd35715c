//! Metrics and log lines: those of each decision, and one access-log line, which `gateway` writes at the end of each
//! request.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::journal::{FollowedRequest, RequestJournal};
use super::observe::DecisionObserver;
use super::{Arrival, Caller, Gate, Handler, Permit, Phase};
use crate::config::RequestLines;
use crate::domain::clock::Timestamp;
use crate::domain::finished_request::FinishedRequest;
use crate::domain::host::RequestHost;
use crate::domain::rate::Charged;
use crate::error::{Code, Error};
use crate::metrics::{Exemplar, MethodLabel, Metrics, RateMetrics, RuleMetrics};
use crate::rules::evaluate::{Admitted, Check, Observer};
use crate::rules::rate::Rate;
use crate::rules::{Mode, Rule};

mod refusal;

/// Metrics of requests without a rule: those to the gateway's own endpoints and those refused before routing.
pub struct NoRuleMetrics {
    own: RuleMetrics,
    none: RuleMetrics,
    lines: RequestLines,
}

impl NoRuleMetrics {
    /// The metrics, and which requests get a log line.
    pub fn new(metrics: &Metrics, lines: RequestLines) -> Self {
        Self { own: metrics.of_rule("(own endpoint)"), none: metrics.of_rule("(no rule)"), lines }
    }
}

/// Counts the steps of a live decision, and logs what shadow mode lets pass.
pub(super) struct Recorder<'a> {
    metrics: &'a Metrics,
    arrival: &'a Arrival,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(metrics: &'a Metrics, arrival: &'a Arrival) -> Self {
        Self { metrics, arrival }
    }

    /// The metrics of the permit's rates, and the name of the rule or endpoint.
    fn rates_of<'p>(&'p self, permit: &'p Permit) -> (&'p RateMetrics, &'p str) {
        match permit {
            Permit::Own(call) => (self.metrics.own_rate(), call.route.path),
            Permit::Upstream(permit) => (&permit.rule.metrics.rate, &permit.rule.name),
            // They have no rates.
            Permit::Preflight(_) => (self.metrics.own_rate(), "preflight"),
            Permit::Redirect(_) => (self.metrics.own_rate(), "redirect"),
        }
    }
}

impl Observer for Recorder<'_> {
    fn on_check(&mut self, _: Check<'_>, _: &Result<(), Error>) {}
}

impl DecisionObserver for Recorder<'_> {
    fn on_refused_origin(&mut self, rule: &Rule) {
        rule.metrics.denied.inc();
    }

    fn on_rule(&mut self, rule: &Rule, mode: Mode, outcome: &Result<Admitted, Error>) {
        match (outcome, mode) {
            (Ok(_), Mode::Enforce) => rule.metrics.allowed.inc(),
            (Err(_), Mode::Enforce) => rule.metrics.denied.inc(),
            (Ok(_), Mode::Shadow) => rule.metrics.shadow_allowed.inc(),
            (Err(error), Mode::Shadow) => {
                rule.metrics.shadow_denied.inc();
                shadow(self.arrival, &rule.name, error);
            }
        }
    }

    fn on_charge(&mut self, permit: &Permit, rate: &Rate, charged: Charged) {
        let (metrics, name) = self.rates_of(permit);
        match (charged, rate.mode) {
            (Charged::Admitted { .. }, _) => metrics.allowed.inc(),
            // Counted once per request, by `on_limit`.
            (Charged::Refused { .. }, Mode::Enforce) => {}
            (Charged::Refused { retry_after }, Mode::Shadow) => {
                metrics.shadow_denied.inc();
                shadow(self.arrival, name, &rate.exceeded(retry_after));
            }
        }
    }

    fn on_limit(&mut self, permit: &Permit, outcome: &Result<(), Error>) {
        let Err(error) = outcome else { return };
        let (metrics, name) = self.rates_of(permit);
        match permit {
            Permit::Upstream(permit) if permit.rule.mode == Mode::Shadow => {
                metrics.shadow_denied.inc();
                shadow(self.arrival, name, error);
            }
            Permit::Upstream(_) | Permit::Own(_) | Permit::Preflight(_) | Permit::Redirect(_) => metrics.denied.inc(),
        }
    }
}

/// One line of the access log.
pub struct AccessLogEntry<'a> {
    /// Request id and addresses.
    pub arrival: &'a Arrival,
    /// The method.
    pub method: &'a str,
    /// The path without the query, which may have a token. As bytes, because most requests get no line.
    pub path: &'a [u8],
    /// Reads the host that the request names. Called only for a line that is written.
    pub host: &'a dyn Fn() -> Option<&'a [u8]>,
    /// What answered.
    pub handler: &'a Handler,
    /// The caller.
    pub caller: &'a Caller,
    /// The phase that the request reached.
    pub phase: Phase,
    /// The response's status; 0 if none was sent.
    pub status: u16,
    /// Why the request was refused or failed.
    pub error: Option<&'a Error>,
    /// The code of a page or redirect that tells a browser about an error.
    pub shown_code: Option<Code>,
    /// Why a response that had begun did not end.
    pub incomplete: Option<&'a Error>,
    /// Why the exchange was cut.
    pub cut: Option<&'static str>,
    /// The trace, if the request is sampled.
    pub trace_id: Option<u128>,
    /// The time from the head, or from the request's turn if it had to wait for one, to the end of the response.
    pub took: Duration,
    /// The part of it until the upstream's response header that was not spent waiting for the upstream.
    pub overhead: Option<Duration>,
    /// The upstream, if the request was sent there or was to be.
    pub upstream: Option<ReachedUpstream<'a>>,
}

/// Where the last attempt of a request went.
#[derive(Debug, Clone, Copy)]
pub struct ReachedUpstream<'a> {
    /// The upstream's configured name.
    pub name: &'a str,
    /// The address; None if the upstream has none yet.
    pub address: Option<&'a str>,
    /// How many attempts were made.
    pub attempts: u64,
}

/// Writes the access-log line of a request and updates its metrics.
pub fn request(gate: &Gate, no_rule: &NoRuleMetrics, entry: &AccessLogEntry<'_>) {
    let (name, metrics) = match entry.handler {
        Handler::Rule(rule) => (&*rule.name, &rule.metrics),
        Handler::Own(route) => (route.path, &no_rule.own),
        Handler::None => ("-", &no_rule.none),
    };
    let exemplar = entry.trace_id.map(|trace_id| Exemplar { trace_id, at: gate.clock.now().millis() as f64 / 1000.0 });
    // A response that did not end is no success, whatever its head said.
    let counted = entry.incomplete.map_or(entry.status, |error| error.status().as_u16());
    metrics.count_request(MethodLabel::of(entry.method), counted, entry.took.as_secs_f64(), exemplar);
    if let Some(overhead) = overhead(entry) {
        gate.metrics.overhead_seconds.observe(overhead.as_secs_f64());
    }
    if let Some(code) = entry.error.map(Error::code).or(entry.shown_code) {
        gate.metrics.refusals().count(code);
    }

    let failed = counted >= 500;
    let is_unanswered = entry.status == 0;
    let unusual = entry.error.is_some() || entry.incomplete.is_some() || entry.cut.is_some() || is_unanswered;
    let wanted = unusual || no_rule.lines == RequestLines::All;
    let enabled = if failed {
        tracing::enabled!(target: "deskgate::request", tracing::Level::WARN)
    } else {
        tracing::enabled!(target: "deskgate::request", tracing::Level::INFO)
    };
    let is_refused = entry.error.or(entry.incomplete).is_some() || entry.cut.is_some() || entry.shown_code.is_some();
    let is_for_journal = is_refused || gate.journal.followers.is_any();
    // The line is formatted only if a subscriber wants it.
    let is_for_log = wanted && enabled;
    if is_for_journal || is_for_log {
        let outcome = Outcome::of(entry);
        if is_for_journal {
            write_journal(&gate.journal, entry, &outcome, unusual);
        }
        if is_for_log {
            write_line(name, entry, &outcome, failed);
        }
    }
}

/// The time that the gateway itself took. None for its own endpoints, some of which wait on purpose, and for requests whose
/// upstream sent no response header.
fn overhead(entry: &AccessLogEntry<'_>) -> Option<Duration> {
    match entry.handler {
        Handler::Own(_) => None,
        Handler::Rule(_) | Handler::None if entry.upstream.is_none() => Some(entry.took),
        Handler::Rule(_) | Handler::None => entry.overhead,
    }
}

/// Logs what a rule or rate in shadow mode would have refused.
pub fn shadow(arrival: &Arrival, name: &str, error: &Error) {
    let code = error.code().number();
    tracing::info!(
        target: "deskgate::shadow",
        { request.id = arrival.request_id.as_str(), client.address = %arrival.client, rule.name = name, code = code },
        "would be refused with {code}: {error}"
    );
}

/// Shows a request to its followers, and keeps it if it was refused.
#[cold]
fn write_journal(journal: &RequestJournal, entry: &AccessLogEntry<'_>, outcome: &Outcome, is_unusual: bool) {
    let session = entry.caller.session();
    let selected_by = FollowedRequest {
        is_unusual,
        rule: handler_name(entry.handler),
        employee_id: session.map(|session| session.employee_id.as_str()),
    };
    let now = journal.now();
    if journal.followers.is_any() {
        journal.publish(selected_by, || Arc::new(finished(entry, outcome, now).into_owned()));
    }
    if let Some(refused) = refusal::describe(entry, outcome, now) {
        journal.remember(&refused);
    }
}

/// Keeps a request that was refused before it was examined, and shows it to followers. Method and path are `-` if no head was parsed.
pub fn refused_early(journal: &RequestJournal, arrival: &Arrival, method: &str, path: &str, error: &Error) {
    let entry = AccessLogEntry {
        arrival,
        method,
        path: path.as_bytes(),
        host: &|| None,
        handler: &Handler::None,
        caller: &Caller::Anonymous,
        phase: Phase::Connection,
        status: error.status().as_u16(),
        error: Some(error),
        shown_code: None,
        incomplete: None,
        cut: None,
        trace_id: None,
        took: Duration::ZERO,
        overhead: None,
        upstream: None,
    };
    write_journal(journal, &entry, &Outcome::of(&entry), true);
}

/// The rule, or the path of the gateway's own endpoint.
fn handler_name(handler: &Handler) -> Option<&str> {
    match handler {
        Handler::Rule(rule) => Some(&rule.name),
        Handler::Own(route) => Some(route.path),
        Handler::None => None,
    }
}

/// The request as operators see it.
fn finished<'a, 'e: 'a>(entry: &AccessLogEntry<'e>, outcome: &'a Outcome, now: Timestamp) -> FinishedRequest<'a> {
    let session = entry.caller.session();
    FinishedRequest {
        at: now,
        request_id: entry.arrival.request_id.as_str().into(),
        client_address: entry.arrival.client,
        method: shown(entry.method, 16),
        path: shown_path(entry),
        status: entry.status,
        code: outcome.code,
        reason: (&*outcome.reason).into(),
        rule: handler_name(entry.handler).map(Into::into),
        employee_id: session.map(|session| session.employee_id.as_str().into()),
        corp_id: session.map(|session| session.corp_id.as_str().into()),
        upstream: entry.upstream.as_ref().map(|reached| reached.name.into()),
        duration_ms: entry.took.as_secs_f64() * 1000.0,
    }
}

/// The path of the request.
fn shown_path<'a>(entry: &AccessLogEntry<'a>) -> Cow<'a, str> {
    match String::from_utf8_lossy(entry.path) {
        Cow::Borrowed(path) => shown(path, 512),
        Cow::Owned(path) => shown(&path, 512).into_owned().into(),
    }
}

/// The host that the request names. A host that is not valid may be anything, and the refusal says so.
fn shown_host<'a>(entry: &AccessLogEntry<'a>) -> Option<Cow<'a, str>> {
    (entry.host)().and_then(RequestHost::parse).map(|host| shown(host.as_str(), 255).into_owned().into())
}

/// How a request ended.
struct Outcome {
    /// The error code; 0 if the request was not refused.
    code: u16,
    /// What happened, in words.
    reason: Cow<'static, str>,
}

impl Outcome {
    fn of(entry: &AccessLogEntry<'_>) -> Self {
        let describe = |outcome: &str, error: &Error| {
            let code = error.code().number();
            (code, format!("{outcome} {code}: {}", shown(&crate::error::chain(error), 512)).into())
        };
        let (code, reason) = match (entry.error, entry.incomplete, entry.cut) {
            (Some(error), _, _) => describe("refused with", error),
            (None, Some(error), _) => describe("response ended early with", error),
            (None, None, Some(reason)) => (0, format!("cut: {reason}").into()),
            (None, None, None) if entry.status == 0 => (0, "the client disconnected before the response".into()),
            (None, None, None) => match entry.shown_code.map(Code::number) {
                Some(code) => (code, format!("answered with a page or redirect about {code}").into()),
                None => (0, "answered".into()),
            },
        };
        Self { code, reason }
    }
}

fn write_line(name: &str, entry: &AccessLogEntry<'_>, outcome: &Outcome, failed: bool) {
    let employee = match entry.caller {
        Caller::SignedIn(known) => known.session.employee_id.as_str(),
        Caller::Anonymous => "-",
    };
    let duration_ms = entry.took.as_secs_f64() * 1000.0;
    let request_id = entry.arrival.request_id.as_str();
    let (method, path, status) = (shown(entry.method, 16), shown_path(entry), entry.status);
    let host = shown_host(entry).unwrap_or("-".into());
    let upstream = entry.upstream.as_ref();
    let Outcome { code, reason } = outcome;
    // Dotted field names need `{ … }` around the fields.
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
                    upstream.name = upstream.map(|reached| reached.name),
                    upstream.address = upstream.and_then(|reached| reached.address),
                    attempts = upstream.map(|reached| reached.attempts),
                    http.host = &*host,
                    http.method = &*method,
                    http.path = &*path,
                    http.status = status,
                    code = code,
                    duration_ms = duration_ms
                },
                "{reason}"
            )
        };
    }
    if failed { line!(tracing::Level::WARN) } else { line!(tracing::Level::INFO) }
}

/// Prepares untrusted text for a log line: truncates it and replaces control characters, which could forge a line.
pub fn shown(text: &str, longest: usize) -> Cow<'_, str> {
    let is_safe = text.len() <= longest && text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if is_safe {
        return text.into();
    }
    text.chars().take(longest).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect::<String>().into()
}
