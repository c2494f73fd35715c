//! Spans in the messages of OTLP, with attributes by OpenTelemetry's semantic conventions for HTTP. What the conventions
//! do not have is named `deskgate.…`.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};

use super::record::{AttemptRecord, TraceRecord};
use crate::platform::call_log::{CallFailure, PlatformCall};

/// The flag of a sampled span.
const SAMPLED: u32 = 1;

/// The flags of a span whose parent is in another process: known to be remote, and remote.
const REMOTE_PARENT: u32 = 0x300;

/// The flags of a span whose parent is in this process: known to be remote or not.
const LOCAL_PARENT: u32 = 0x100;

/// The gateway that the spans are of.
pub(super) fn resource(service: &str, instance: &str) -> Resource {
    Resource {
        attributes: vec![
            text("service.name", service),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("service.instance.id", instance),
        ],
        ..Resource::default()
    }
}

/// The message with the spans of these requests.
pub(super) fn message(resource: &Resource, records: &[Box<TraceRecord>]) -> ExportTraceServiceRequest {
    let scope = InstrumentationScope {
        name: "deskgate".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let spans = records.iter().flat_map(|record| {
        let attempts = record.attempts.iter().map(|attempt| client_span(record, attempt));
        let calls = record.calls.iter().enumerate().map(|(index, call)| platform_span(record, index, call));
        std::iter::once(server_span(record)).chain(attempts).chain(calls)
    });
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource.clone()),
            scope_spans: vec![ScopeSpans { scope: Some(scope), spans: spans.collect(), ..ScopeSpans::default() }],
            ..ResourceSpans::default()
        }],
    }
}

fn server_span(record: &TraceRecord) -> Span {
    let subject = &record.subject;
    let mut attributes = vec![
        text("http.request.method", &subject.method),
        text("url.path", &subject.path),
        text("url.scheme", &subject.scheme),
        text("network.protocol.version", subject.protocol),
        text("deskgate.request_id", &subject.request_id),
    ];
    attributes.extend(subject.host.as_deref().map(|host| text("server.address", host)));
    attributes.extend(subject.route.as_deref().map(|route| text("http.route", route)));
    attributes.extend(subject.rule.as_deref().map(|rule| text("deskgate.rule", rule)));
    let status = record.end.map_or(0, |end| end.status);
    let code = record.end.and_then(|end| end.code);
    attributes.extend((status > 0).then(|| number("http.response.status_code", status.into())));
    attributes.extend(code.map(|code| number("deskgate.error_code", code.into())));
    // Of a server, what the client did wrong is no error.
    let error = match (record.end, code) {
        (None, _) => Some("cut".to_owned()),
        (Some(_), _) if status == 0 => Some("no_response".to_owned()),
        (Some(_), Some(code)) if status >= 500 => Some(code.to_string()),
        (Some(_), None) if status >= 500 => Some(status.to_string()),
        (Some(_), _) => None,
    };
    attributes.extend(error.as_deref().map(|error| text("error.type", error)));
    let name = match &subject.route {
        Some(route) => format!("{} {route}", subject.method),
        None => subject.method.clone(),
    };
    Span {
        trace_id: record.ids.trace.to_be_bytes().to_vec(),
        span_id: record.ids.span.to_be_bytes().to_vec(),
        parent_span_id: record.ids.parent.map(|span| span.to_be_bytes().to_vec()).unwrap_or_default(),
        flags: SAMPLED | if record.ids.parent.is_some() { REMOTE_PARENT } else { 0 },
        name,
        kind: SpanKind::Server.into(),
        start_time_unix_nano: record.began,
        end_time_unix_nano: after(record, record.took),
        attributes,
        status: Some(status_of(error.is_some())),
        ..Span::default()
    }
}

fn client_span(record: &TraceRecord, attempt: &AttemptRecord) -> Span {
    let subject = &record.subject;
    let mut attributes = vec![
        text("http.request.method", &subject.method),
        text("url.path", &subject.path),
        text("deskgate.upstream", &attempt.upstream),
    ];
    match attempt.address.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            attributes.push(text("server.address", host.trim_matches(['[', ']'])));
            attributes.extend(port.parse().ok().map(|port| number("server.port", port)));
        }
        _ => attributes.push(text("server.address", &attempt.address)),
    }
    attributes.extend(attempt.status.map(|status| number("http.response.status_code", status.into())));
    let resent = i64::try_from(attempt.number.saturating_sub(1)).unwrap_or(i64::MAX);
    attributes.extend((resent > 0).then(|| number("http.request.resend_count", resent)));
    let status = attempt.status.filter(|status| *status >= 400).map(|status| status.to_string());
    let error = attempt.failure.map(str::to_owned).or(status);
    attributes.extend(error.as_deref().map(|error| text("error.type", error)));
    Span {
        trace_id: record.ids.trace.to_be_bytes().to_vec(),
        span_id: record.attempt_span(attempt.number).to_be_bytes().to_vec(),
        parent_span_id: record.ids.span.to_be_bytes().to_vec(),
        flags: SAMPLED | LOCAL_PARENT,
        name: subject.method.clone(),
        kind: SpanKind::Client.into(),
        start_time_unix_nano: after(record, attempt.began),
        end_time_unix_nano: after(record, attempt.ended.unwrap_or(record.took)),
        attributes,
        status: Some(status_of(error.is_some())),
        ..Span::default()
    }
}

/// A call of the messaging platform. Its query, which has the access token, and its body are left out.
fn platform_span(record: &TraceRecord, index: usize, call: &PlatformCall) -> Span {
    let template = format!("/{}", call.api);
    let mut attributes = vec![
        text("deskgate.platform", "wecom"),
        text("http.request.method", call.method),
        text("url.template", &template),
        text("server.address", &call.host),
    ];
    attributes.extend(call.port.map(|port| number("server.port", port.into())));
    attributes.extend(call.status.map(|status| number("http.response.status_code", status.into())));
    let error = call.failure.map(|failure| match failure {
        CallFailure::Timeout => "timeout".to_owned(),
        CallFailure::Connection => "connection".to_owned(),
        CallFailure::Status(status) => status.to_string(),
        CallFailure::InvalidResponse => "invalid_response".to_owned(),
        CallFailure::Errcode(number) => format!("errcode_{number}"),
        CallFailure::Cancelled => "cancelled".to_owned(),
    });
    attributes.extend(error.as_deref().map(|error| text("error.type", error)));
    Span {
        trace_id: record.ids.trace.to_be_bytes().to_vec(),
        span_id: record.call_span(index).to_be_bytes().to_vec(),
        parent_span_id: record.ids.span.to_be_bytes().to_vec(),
        flags: SAMPLED | LOCAL_PARENT,
        name: format!("{} {template}", call.method),
        kind: SpanKind::Client.into(),
        start_time_unix_nano: after(record, record.since_start(call.began)),
        end_time_unix_nano: after(record, record.since_start(call.ended)),
        attributes,
        status: Some(status_of(error.is_some())),
        ..Span::default()
    }
}

fn after(record: &TraceRecord, time: Duration) -> u64 {
    record.began.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn status_of(is_error: bool) -> Status {
    let code = if is_error { StatusCode::Error } else { StatusCode::Unset };
    Status { code: code.into(), ..Status::default() }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn number(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
