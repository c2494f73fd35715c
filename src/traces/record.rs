//! What is recorded of a sampled request until it is exported. Nothing here knows a token, a query or an employee.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{GOLDEN, Tracer, mixed};
use crate::platform::call_log::{CallLog, PlatformCall};

/// The ids of a request's span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TraceIds {
    pub(super) trace: u128,
    pub(super) span: u64,
    pub(super) parent: Option<u64>,
}

/// The request that is traced.
#[derive(Debug, Clone, Default)]
pub struct TraceSubject {
    /// The method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// `http` or `https`.
    pub scheme: String,
    /// The host that the request names.
    pub host: Option<String>,
    /// The version of HTTP: `1.1` or `2`.
    pub protocol: &'static str,
    /// The request id, which the log has, too.
    pub request_id: String,
    /// The rule.
    pub rule: Option<Arc<str>>,
    /// The path pattern of the rule or endpoint.
    pub route: Option<String>,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEnd {
    /// The response's status; 0 if none was sent.
    pub status: u16,
    /// The error code of a refusal or failure.
    pub code: Option<u16>,
}

/// Why an attempt to reach an upstream failed.
pub type AttemptFailure = &'static str;

/// One attempt to reach an upstream.
#[derive(Debug, Clone)]
pub(super) struct AttemptRecord {
    pub(super) number: u64,
    pub(super) upstream: Arc<str>,
    pub(super) address: String,
    /// Since the request began.
    pub(super) began: Duration,
    pub(super) ended: Option<Duration>,
    pub(super) status: Option<u16>,
    pub(super) failure: Option<AttemptFailure>,
}

/// A request from its head to its end.
#[derive(Debug)]
pub(super) struct TraceRecord {
    pub(super) ids: TraceIds,
    /// Nanoseconds since 1970.
    pub(super) began: u64,
    started: Instant,
    pub(super) took: Duration,
    pub(super) subject: TraceSubject,
    /// None if the exchange was cut.
    pub(super) end: Option<TraceEnd>,
    pub(super) attempts: Vec<AttemptRecord>,
    /// Set while one of the gateway's own endpoints answers the request.
    call_log: Option<CallLog>,
    /// The calls of the platform.
    pub(super) calls: Vec<PlatformCall>,
}

impl TraceRecord {
    pub(super) fn new(ids: TraceIds, began: u64, started: Instant, subject: TraceSubject) -> Self {
        Self {
            ids,
            began,
            started,
            took: Duration::ZERO,
            subject,
            end: None,
            attempts: Vec::new(),
            call_log: None,
            calls: Vec::new(),
        }
    }

    /// How many spans it becomes.
    pub(super) fn spans(&self) -> u64 {
        1 + self.attempts.len() as u64 + self.calls.len() as u64
    }

    /// The span id of an attempt.
    pub(super) fn attempt_span(&self, number: u64) -> u64 {
        // Zero is no id.
        mixed(self.ids.span.wrapping_add(number.wrapping_mul(GOLDEN))).max(1)
    }

    /// The span id of a call of the platform.
    pub(super) fn call_span(&self, index: usize) -> u64 {
        // Far from the numbers of attempts.
        self.attempt_span(u64::MAX - index as u64)
    }

    /// The time from the beginning of the request.
    pub(super) fn since_start(&self, time: Instant) -> Duration {
        time.saturating_duration_since(self.started)
    }

    fn close(&mut self) {
        self.calls = self.call_log.take().map(|log| log.take()).unwrap_or_default();
        self.took = self.started.elapsed();
        for attempt in &mut self.attempts {
            attempt.ended.get_or_insert(self.took);
        }
    }
}

/// A sampled request while it runs. If it is dropped before [`finish`](Self::finish), its exchange was cut.
#[derive(Debug)]
pub struct RequestTrace {
    tracer: Arc<Tracer>,
    record: Option<Box<TraceRecord>>,
}

impl RequestTrace {
    pub(super) fn new(tracer: Arc<Tracer>, record: TraceRecord) -> Self {
        Self { tracer, record: Some(Box::new(record)) }
    }

    /// The trace.
    pub fn trace_id(&self) -> u128 {
        self.record.as_ref().map_or(0, |record| record.ids.trace)
    }

    /// The span of the current attempt, which the upstream's is a child of; that of the request before the first.
    pub fn current_span(&self) -> u64 {
        let Some(record) = &self.record else { return 0 };
        record.attempts.last().map_or(record.ids.span, |attempt| record.attempt_span(attempt.number))
    }

    /// Begins an attempt to reach an address.
    pub fn begin_attempt(&mut self, number: u64, upstream: &Arc<str>, address: &str) {
        let Some(record) = &mut self.record else { return };
        let began = record.started.elapsed();
        record.attempts.push(AttemptRecord {
            number,
            upstream: upstream.clone(),
            address: address.to_owned(),
            began,
            ended: None,
            status: None,
            failure: None,
        });
    }

    /// Notes the status of the upstream's response.
    pub fn note_status(&mut self, status: u16) {
        if let Some(attempt) = self.record.as_mut().and_then(|record| record.attempts.last_mut()) {
            attempt.status = Some(status);
        }
    }

    /// Ends the current attempt.
    pub fn fail_attempt(&mut self, failure: AttemptFailure) {
        let Some(record) = &mut self.record else { return };
        let now = record.started.elapsed();
        if let Some(attempt) = record.attempts.last_mut().filter(|attempt| attempt.ended.is_none()) {
            attempt.ended = Some(now);
            attempt.failure = Some(failure);
        }
    }

    /// Runs what answers the request, and records its calls of the platform.
    pub async fn watch_calls<F: Future>(&mut self, answer: F) -> F::Output {
        match &mut self.record {
            Some(record) => {
                let log = record.call_log.get_or_insert_default().clone();
                log.watch(answer).await
            }
            None => answer.await,
        }
    }

    /// Ends the request and queues its spans for the collector.
    pub fn finish(mut self, end: TraceEnd) {
        if let Some(record) = &mut self.record {
            record.end = Some(end);
        }
    }
}

impl Drop for RequestTrace {
    fn drop(&mut self) {
        if let Some(mut record) = self.record.take() {
            record.close();
            self.tracer.send(record);
        }
    }
}
