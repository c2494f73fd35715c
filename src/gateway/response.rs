//! Rewrites an upstream's response header for the client in Pingora's lane and for WebSockets, and writes responses to clients of
//! Pingora's lane. `fast_lane/response` has the same rules for bytes: who changes one changes both. Relaying the body is left to the lanes.

use std::time::Instant;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, Method, StatusCode, Version};
use pingora_core::protocols::http::{HttpTask, ServerSession as Exchange};
use pingora_core::{Error as PingoraError, ErrorType};
use pingora_http::ResponseHeader;

use super::Gateway;
use super::context::RequestContext;
use super::current_exchange;
use super::exchange_step::Remaining;
use super::http1_exchange::PIECE;
use crate::domain::hop_by_hop::is_hop_by_hop;
use crate::error::Error;
use crate::pipeline::Arrival;
use crate::pipeline::forward::{self, REQUEST_ID};
use crate::pipeline::head::lists;
use crate::rules::CorsHandling;

impl Gateway {
    /// Rewrites the upstream's response header for the client and records the response time.
    pub(super) fn rewrite_response(
        &self,
        response: &mut ResponseHeader,
        context: &mut RequestContext,
    ) -> pingora_core::Result<()> {
        self.note_response(response.status, Instant::now(), context)?;
        let (Some(permit), Some(arrival)) = (&context.permit, &context.arrival) else {
            return pingora_core::Error::e_explain(ErrorType::InternalError, "no permit");
        };
        remove_connection_headers(response);
        sanitize_response(response, permit.rule.cors, arrival)
    }

    /// Records the status of a response of the upstream that has arrived `now`, and how long it took. An upgrade that was not requested
    /// is a failure.
    pub(super) fn note_response(
        &self,
        status: StatusCode,
        now: Instant,
        context: &mut RequestContext,
    ) -> pingora_core::Result<()> {
        if status == StatusCode::SWITCHING_PROTOCOLS {
            // WebSocket handshakes take another lane, so this request did not ask for an upgrade.
            context.error = Some(Error::UpstreamFailed(Some("the upstream sent an unrequested 101".into())));
            return pingora_core::Error::e_explain(ErrorType::InvalidHTTPHeader, "unrequested 101");
        }
        if let Some(elapsed) = context.attempts.succeed(now) {
            context.overhead = Some(now.saturating_duration_since(context.started).saturating_sub(elapsed));
        }
        if let Some(trace) = &mut context.attempts.trace {
            trace.note_status(status.as_u16());
        }
        if !status.is_informational() {
            current_exchange::note_response(status, context.overhead);
        }
        Ok(())
    }

    /// How much is written at once. Pingora limits the time of each write; on HTTP/2 a stream must take as much in a grace
    /// as the minimum rate demands.
    pub(super) fn longest_write(&self, exchange: &mut Exchange) -> usize {
        if !exchange.is_http2() {
            return usize::MAX;
        }
        let limits = self.gate.limits.load();
        let (rate, grace) = (limits.body_rate, limits.body_grace.get());
        if rate == 0 {
            return usize::MAX;
        }
        exchange.set_write_timeout(Some(grace));
        let bytes = u128::from(rate) * grace.as_millis() / 1000;
        usize::try_from(bytes).unwrap_or(PIECE).clamp(1, PIECE)
    }
}

/// The error of a task that only flushes.
const FLUSHED: ErrorType = ErrorType::Custom("Flushed");

/// Whether a response with this status never has a body.
pub(super) fn has_no_body(status: StatusCode) -> bool {
    status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Removes what is meant for the gateway's connection to the upstream: the hop-by-hop headers and those that `Connection` names.
/// A response that never has a body has no length either: in a 304 it is that of another response, and clients have waited for it.
pub(super) fn remove_connection_headers(response: &mut ResponseHeader) {
    let headers = &response.headers;
    let is_nominated = |name: &HeaderName| {
        // Without its length the client could not find the end of the body.
        *name != CONTENT_LENGTH
            && headers.get_all(CONNECTION).iter().any(|value| lists(value.as_bytes(), name.as_str()))
    };
    let is_length = |name: &HeaderName| *name == CONTENT_LENGTH && has_no_body(response.status);
    let is_removed =
        |name: &&HeaderName| is_hop_by_hop(name.as_str().as_bytes()) || is_nominated(name) || is_length(name);
    let removed: Vec<HeaderName> = headers.keys().filter(is_removed).cloned().collect();
    for name in removed {
        response.remove_header(&name);
    }
}

/// Says in the head where an HTTP/1 client finds the end of the body. HTTP/1.0 has no chunks, so there the end of the connection is
/// the end of the body.
pub(super) fn frame_response(
    exchange: &mut Exchange,
    response: &mut ResponseHeader,
    body: Remaining,
) -> pingora_core::Result<()> {
    if exchange.is_http2() {
        return Ok(());
    }
    response.set_version(Version::HTTP_11);
    if has_no_body(response.status) || response.headers.contains_key(CONTENT_LENGTH) {
        return Ok(());
    }
    let request = exchange.req_header();
    match body {
        Remaining::Nothing if request.method == Method::HEAD => Ok(()),
        // Otherwise the client would wait for the end of the connection, or take the next response for the body.
        Remaining::Nothing => response.insert_header(CONTENT_LENGTH, HeaderValue::from_static("0")),
        Remaining::Something if request.version == Version::HTTP_10 => {
            exchange.set_keepalive(None);
            Ok(())
        }
        Remaining::Something => response.insert_header(TRANSFER_ENCODING, HeaderValue::from_static("chunked")),
    }
}

/// Relays an informational response to a client that can make something of it: HTTP/1.0 has none, and a 100 is for clients that
/// wait for one.
pub(super) async fn write_informational(
    exchange: &mut Exchange,
    response: Box<ResponseHeader>,
) -> pingora_core::Result<()> {
    let request = exchange.req_header();
    let is_unexpected = response.status == StatusCode::CONTINUE && !request.headers.contains_key(EXPECT);
    if request.version == Version::HTTP_10 || is_unexpected {
        return Ok(());
    }
    let keepalive = exchange.get_keepalive();
    exchange.write_response_header(response).await.map_err(PingoraError::into_down)?;
    // Writing an informational response switches keep-alive off.
    exchange.set_keepalive(keepalive);
    Ok(())
}

/// Sends an HTTP/1 client what has been written so far. Pingora does so by itself only at the end of a body with a length, and where
/// a task of a response fails.
pub(super) async fn flush(exchange: &mut Exchange) -> pingora_core::Result<()> {
    let Exchange::H1(session) = exchange else { return Ok(()) };
    let limit = session.get_write_timeout();
    let flushing = session.response_duplex_vec(vec![
        HttpTask::Body(None, false),
        HttpTask::Failed(PingoraError::explain(FLUSHED, "nothing has failed")),
    ]);
    let flushed = match limit {
        Some(limit) => pingora_timeout::timeout(limit, flushing)
            .await
            .map_err(|_| PingoraError::explain(ErrorType::WriteTimedout, "flushing the response").into_down())?,
        None => flushing.await,
    };
    match flushed {
        Err(error) if *error.etype() != FLUSHED => Err(error.into_down()),
        _ => Ok(()),
    }
}

/// Writes what was read of a response, `most` bytes at once.
pub(super) async fn write_body(
    exchange: &mut Exchange,
    mut bytes: Option<Bytes>,
    is_last: bool,
    most: usize,
) -> pingora_core::Result<()> {
    while let Some(rest) = bytes.as_mut().filter(|rest| rest.len() > most) {
        let piece = rest.split_to(most);
        exchange.write_response_body(piece, false).await.map_err(PingoraError::into_down)?;
    }
    exchange.write_response_body(bytes.unwrap_or_default(), is_last).await.map_err(PingoraError::into_down)
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

/// The reason phrase, unless it is the standard one of its status.
fn custom_reason(response: &ResponseHeader) -> Option<&str> {
    response.get_reason_phrase().filter(|reason| Some(*reason) != response.status.canonical_reason())
}
