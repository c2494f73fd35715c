//! Rewrites an upstream's response header for the client, in every lane to an upstream. Relaying the body is left to
//! the lanes.

use http::StatusCode;
use pingora_core::ErrorType;
use pingora_http::ResponseHeader;

use super::Gateway;
use super::context::RequestContext;
use super::current_exchange;
use crate::error::Error;
use crate::pipeline::Arrival;
use crate::pipeline::forward::{self, REQUEST_ID};
use crate::rules::CorsHandling;

impl Gateway {
    /// Rewrites the upstream's response header for the client and records the response time.
    pub(super) fn rewrite_response(
        &self,
        response: &mut ResponseHeader,
        context: &mut RequestContext,
    ) -> pingora_core::Result<()> {
        self.note_response(response.status, context)?;
        let (Some(permit), Some(arrival)) = (&context.permit, &context.arrival) else {
            return pingora_core::Error::e_explain(ErrorType::InternalError, "no permit");
        };
        sanitize_response(response, permit.rule.cors, arrival)
    }

    /// Records the status of a response of the upstream, and the time until it. An upgrade that was not requested is a failure.
    pub(super) fn note_response(&self, status: StatusCode, context: &mut RequestContext) -> pingora_core::Result<()> {
        if status == StatusCode::SWITCHING_PROTOCOLS {
            // WebSocket handshakes take another lane, so this request did not ask for an upgrade.
            context.error = Some(Error::UpstreamFailed(Some("the upstream sent an unrequested 101".into())));
            return pingora_core::Error::e_explain(ErrorType::InvalidHTTPHeader, "unrequested 101");
        }
        if let Some(elapsed) = context.attempts.succeed() {
            context.overhead = Some(context.started.elapsed().saturating_sub(elapsed));
        }
        if let Some(trace) = &mut context.attempts.trace {
            trace.note_status(status.as_u16());
        }
        if !status.is_informational() {
            current_exchange::note_response(status, context.overhead);
        }
        Ok(())
    }
}

/// Removes identity headers from an upstream's response and sets the request id, the CORS headers and HSTS.
pub(super) fn sanitize_response(
    response: &mut ResponseHeader,
    cors: CorsHandling,
    arrival: &Arrival,
) -> pingora_core::Result<()> {
    let reason = custom_reason(response).map(str::to_owned);
    // Rebuilding the header drops the map of original header names, as for requests.
    let empty = ResponseHeader::from(http::Response::new(()).into_parts().0);
    let mut parts = http::response::Parts::from(std::mem::replace(response, empty));
    for name in forward::removed_from_response(&parts.headers, cors) {
        parts.headers.remove(name);
    }
    parts.headers.insert(REQUEST_ID, arrival.request_id.to_value());
    if cors == CorsHandling::Gateway {
        arrival.cross_origin.write(&mut parts.headers);
    }
    arrival.write_hsts(&mut parts.headers);
    *response = ResponseHeader::from(parts);
    if reason.is_some() {
        response.set_reason_phrase(reason.as_deref())?;
    }
    Ok(())
}

/// Copies a response header without its map of original header names.
pub(super) fn copy_response_header(response: &ResponseHeader) -> ResponseHeader {
    let mut parts = http::Response::new(()).into_parts().0;
    parts.status = response.status;
    parts.version = response.version;
    parts.headers = response.headers.clone();
    let mut copy = ResponseHeader::from(parts);
    let reason = custom_reason(response);
    if reason.is_some() {
        // The phrase was parsed as one, so it is valid.
        let _ = copy.set_reason_phrase(reason);
    }
    copy
}

/// The reason phrase, unless it is the standard one of its status.
fn custom_reason(response: &ResponseHeader) -> Option<&str> {
    response.get_reason_phrase().filter(|reason| Some(*reason) != response.status.canonical_reason())
}
