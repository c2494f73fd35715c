//! Begins and ends the traces of requests. Without `traces.endpoint` this costs a request one branch.

use std::borrow::Cow;
use std::sync::Arc;

use super::Gateway;
use super::context::RequestContext;
use crate::domain::host::RequestHost;
use crate::error::Error;
use crate::pipeline::head::{HttpVersion, RequestHead};
use crate::pipeline::trace::{TraceParent, own_trace};
use crate::pipeline::{Arrival, Handler, Permit, record};
use crate::traces::{ParentSpan, RequestTrace, Sampling, TraceEnd, TraceSubject, Tracer};

/// The longest path of a span, as in the log.
const LONGEST_PATH: usize = 512;

impl Gateway {
    /// Begins the trace of a request that has been decided about. A trusted proxy decides whether its requests are sampled;
    /// the upstream is told what was decided.
    pub(super) fn begin_trace(
        &self,
        tracer: &Arc<Tracer>,
        head: &RequestHead<'_>,
        context: &mut RequestContext,
        arrival: &Arrival,
        verdict: &mut Result<Permit, Error>,
    ) {
        let (mut parents, mut parent, mut host) = (0, None, head.authority);
        head.lines.each(&mut |name, value| match name {
            b"traceparent" => {
                parents += 1;
                parent = TraceParent::parse(value);
            }
            b"host" => host = Some(value),
            _ => {}
        });
        // Two of them continue no trace.
        let parent = parent.filter(|_| parents == 1);
        let parent = parent.map(|parent| ParentSpan {
            trace: parent.trace_id(),
            span: parent.span_id(),
            decision: self.gate.proxies.contains(arrival.peer).then_some(match parent.is_sampled() {
                true => Sampling::Sampled,
                false => Sampling::NotSampled,
            }),
        });
        let subject = || TraceSubject {
            method: record::shown(head.method, 16).into_owned(),
            path: record::shown(&path(head.target), LONGEST_PATH).into_owned(),
            scheme: self.gate.scheme.to_str().unwrap_or_default().to_owned(),
            host: host.and_then(RequestHost::parse).map(|host| host.as_str().to_owned()),
            protocol: if head.version == HttpVersion::Http2 { "2" } else { "1.1" },
            request_id: arrival.request_id.as_str().to_owned(),
            rule: match &context.handler {
                Handler::Rule(rule) => Some(rule.name.clone()),
                Handler::Own(_) | Handler::None => None,
            },
            route: match &context.handler {
                Handler::Rule(rule) => Some(rule.path.to_string()),
                Handler::Own(route) => Some(route.path.to_owned()),
                Handler::None => None,
            },
        };
        let trace = tracer.begin(parent, own_trace(&arrival.request_id), context.started, subject);
        if let (None, Ok(Permit::Upstream(permit))) = (&trace, verdict) {
            permit.trace = permit.trace.map(TraceParent::unsampled);
        }
        context.attempts.trace = trace;
    }
}

/// The path of a target.
fn path(target: &[u8]) -> Cow<'_, str> {
    let end = memchr::memchr(b'?', target).unwrap_or(target.len());
    String::from_utf8_lossy(&target[..end])
}

/// Ends the trace of a request, if it has one. Returns its id, for the exemplar of its duration.
pub(super) fn end_trace(context: &mut RequestContext, status: u16) -> Option<u128> {
    let trace: Box<RequestTrace> = context.attempts.trace.take()?;
    let error = context.error.as_ref().or(context.incomplete.as_ref()).map(Error::code).or(context.shown_code);
    let id = trace.trace_id();
    trace.finish(TraceEnd { status, code: error.map(|code| code.number()) });
    Some(id)
}
