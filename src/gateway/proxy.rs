//! Carries every request that no other lane takes, over HTTP/1 and HTTP/2 on either side, gRPC among them. Relays the bodies of
//! both directions in one task, one piece at a time: pingora-proxy reads half a megabyte of a response ahead, and a client may
//! have a hundred streams that it does not read. It also repairs ambiguous responses, and this lane refuses them. While the client takes a
//! piece of the response, the request's body waits; in the fast lane it does not. Most requests are GETs without a body: their head is sent
//! as bytes, without a header map. Framing is left to the sessions, retries to [`connect`](super::connect), failures to
//! [`Gateway::serve_session`](super::Gateway::serve_session).

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::FutureExt;
use http::header::{CONTENT_LENGTH, EXPECT, HOST, TE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Uri, Version, uri};
use pingora_core::protocols::http::{HttpTask, ServerSession as Exchange};
use pingora_core::{Error as PingoraError, ErrorType};
use pingora_http::RequestHeader;
use tokio::task::unconstrained;

use super::Gateway;
use super::buffer::Buffer;
use super::connect::{Progress, Replay, RetryDecision, UpstreamAttempts, UpstreamConnection};
use super::connector::{ConnectionSource, UpstreamTransport};
use super::context::RequestContext;
use super::exchange_step::{ExchangeStep, PieceEnd, Remaining};
use super::failure::internal_error;
use super::http1_exchange::Http1Exchange;
use super::http2_exchange::Http2Exchange;
use super::request_head::{HeaderMapLines, drop_header_case, remove_hop_by_hop, request_head};
use super::response::{flush, frame_response, write_body, write_informational};
use super::upstream_session::UpstreamSession;
use crate::config::UpstreamProtocol;
use crate::domain::identity::is_look_alike;
use crate::pipeline::forward;
use crate::pipeline::trace::replace_traceparent;
use crate::upstreams::Address;

/// When a response begins, what has come of the request's body is read until it is this much. If the body does not end there, the client's
/// connection ends after the response.
const ENOUGH_BODY: usize = 64 * 1024;

/// The head of a request, as its upstream gets it.
enum UpstreamHead {
    /// Of a GET without a body, encoded for HTTP/1.1.
    Encoded(Buffer),
    /// Of any other request. Whether a body follows is not asked again for a retry: an empty one may have been read to its end by then.
    Map { request: Box<RequestHeader>, body: Remaining },
}

impl UpstreamHead {
    /// Names the span of the current attempt, if the request is sampled.
    fn write_traceparent(&mut self, attempts: &UpstreamAttempts) -> pingora_core::Result<()> {
        match self {
            Self::Map { request, .. } => attempts.write_traceparent(request),
            Self::Encoded(head) => {
                if let Some(parent) = attempts.traceparent() {
                    replace_traceparent(head, &parent);
                }
                Ok(())
            }
        }
    }
}

/// The upstream's side of an exchange.
struct UpstreamSide {
    session: UpstreamSession,
    address: Arc<Address>,
    source: ConnectionSource,
    upload: UploadState,
    /// What was read of the request's body when the response began, until it is sent. Empty if only the end of the body was read.
    unsent: Option<Bytes>,
}

/// How far the request's body has come to the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UploadState {
    Sending,
    Sent,
    /// The upstream takes no more of it. Its response may come all the same, such as a 413.
    Abandoned,
}

impl Gateway {
    /// Sends a request to its upstream and relays the response.
    pub(super) async fn proxy(
        &self,
        exchange: &mut Exchange,
        context: &mut RequestContext,
    ) -> pingora_core::Result<()> {
        let mut head = self.head_for_upstream(exchange, context)?;
        if let UpstreamHead::Map { request, .. } = &head {
            if !exchange.is_http2() && request.version == Version::HTTP_2 {
                tell_to_continue(exchange).await?;
            }
            // An HTTP/2 upstream can refuse a request before it has begun to work on it, which makes every method repeatable.
            if request.method.is_idempotent() || request.version == Version::HTTP_2 {
                exchange.enable_retry_buffering();
            }
        }
        let (mut upstream, mut part) = self.send_request(exchange, context, &mut head).await?;
        let (mut response, is_done) = loop {
            let HttpTask::Header(mut header, is_done) = part else {
                return Err(internal_error("a response without a header"));
            };
            self.rewrite_response(&mut header, context)?;
            if !header.status.is_informational() {
                break (header, is_done);
            }
            write_informational(exchange, header).await?;
            part = upstream.next_part(exchange).await?;
        };
        if !exchange.is_http2() {
            upstream.read_arrived_body(exchange)?;
        }
        self.close_if_draining(exchange);
        frame_response(exchange, &mut response, Remaining::after(is_done))?;
        // What has come with the head is read before the head is written: if it is malformed, the client gets a 1502.
        let ready = if is_done { None } else { upstream.session.next_read_part().map_err(PingoraError::into_up)? };
        if is_done {
            upstream.release_address(&mut context.attempts);
        }
        match exchange {
            // Otherwise Pingora would end the response with an empty piece of a body, which gRPC clients refuse.
            Exchange::H2(stream) if is_done => stream.write_response_header(response, true),
            _ => exchange.write_response_header(response).await,
        }
        .map_err(PingoraError::into_down)?;
        if !is_done {
            self.relay_body(exchange, &mut upstream, &mut context.attempts, ready).await?;
        }
        upstream.send_rest(exchange).await?;
        self.release(upstream);
        Ok(())
    }

    async fn relay_body(
        &self,
        exchange: &mut Exchange,
        upstream: &mut UpstreamSide,
        attempts: &mut UpstreamAttempts,
        mut ready: Option<HttpTask>,
    ) -> pingora_core::Result<()> {
        let most = self.longest_write(exchange);
        loop {
            let part = match ready.take() {
                Some(part) => part,
                None => {
                    flush(exchange).await?;
                    upstream.next_part(exchange).await?
                }
            };
            if matches!(part, HttpTask::Body(_, true) | HttpTask::Trailer(_) | HttpTask::Done) {
                upstream.release_address(attempts);
            }
            match part {
                HttpTask::Body(bytes, is_last) => {
                    write_body(exchange, bytes, is_last, most).await?;
                    if is_last {
                        return Ok(());
                    }
                }
                HttpTask::Trailer(Some(trailers)) if exchange.is_http2() => {
                    let written = exchange.write_response_trailers(sanitize_trailers(*trailers)).await;
                    return written.map_err(PingoraError::into_down);
                }
                HttpTask::Trailer(_) | HttpTask::Done => return write_body(exchange, None, true, most).await,
                _ => return Err(internal_error("a response without an end")),
            }
        }
    }

    /// The head as the upstream gets it, over the version of HTTP that it speaks.
    fn head_for_upstream(
        &self,
        exchange: &mut Exchange,
        context: &mut RequestContext,
    ) -> pingora_core::Result<UpstreamHead> {
        let Some(permit) = &context.permit else { return Err(internal_error("no permit")) };
        if permit.is_bodyless_get && permit.rule.upstream.protocol == UpstreamProtocol::Http1 {
            let lines = HeaderMapLines(&exchange.req_header().headers);
            return self.upstream_head(&request_head(exchange, &lines), context).map(UpstreamHead::Encoded);
        }
        drop_header_case(exchange.req_header_mut());
        let body = Remaining::after(exchange.is_body_empty());
        Ok(UpstreamHead::Map { request: Box::new(self.upstream_request(exchange, context)?), body })
    }

    /// The request with a header map for its upstream.
    fn upstream_request(
        &self,
        exchange: &mut Exchange,
        context: &mut RequestContext,
    ) -> pingora_core::Result<RequestHeader> {
        let (Some(permit), Some(arrival)) = (&context.permit, &context.arrival) else {
            return Err(internal_error("no permit"));
        };
        let mut parts = http::request::Parts::from(exchange.req_header().clone());
        let wants_trailers = parts.headers.get_all(TE).iter().any(|value| value == "trailers");
        remove_hop_by_hop(&mut parts.headers);
        if parts.version == Version::HTTP_10 {
            // RFC 9110, section 10.1.1: such a client does not wait for a 100.
            parts.headers.remove(EXPECT);
        }
        if let (None, Some(authority)) = (parts.headers.get(HOST), parts.uri.authority()) {
            let host = HeaderValue::from_str(authority.as_str());
            parts.headers.insert(HOST, host.map_err(|_| internal_error("an authority that is no host"))?);
        }
        let protocol = permit.rule.upstream.protocol;
        match protocol {
            UpstreamProtocol::Http1 => {
                parts.version = Version::HTTP_11;
                if !exchange.is_body_empty() && !parts.headers.contains_key(CONTENT_LENGTH) {
                    parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
                }
            }
            UpstreamProtocol::Http2 => {
                parts.version = Version::HTTP_2;
                // gRPC servers demand it; no other value is allowed.
                if wants_trailers {
                    parts.headers.insert(TE, HeaderValue::from_static("trailers"));
                }
            }
        }
        let mut request = RequestHeader::from(parts);
        forward::rewrite_request(&self.gate, permit, arrival, &mut request).map_err(|error| {
            context.error = Some(error);
            internal_error("the head cannot be forwarded")
        })?;
        if protocol == UpstreamProtocol::Http2 { with_authority(request) } else { Ok(request) }
    }

    /// Sends the request and waits for the response header.
    async fn send_request(
        &self,
        exchange: &mut Exchange,
        context: &mut RequestContext,
        head: &mut UpstreamHead,
    ) -> pingora_core::Result<(UpstreamSide, HttpTask)> {
        let Some(permit) = &context.permit else { return Err(internal_error("no permit")) };
        loop {
            let connected = self.connect(&mut context.attempts, permit.rule.upstream.protocol).await?;
            let mut upstream = UpstreamSide::new(connected, context.attempts.address()?.clone());
            head.write_traceparent(&context.attempts)?;
            match upstream.begin(exchange, head).await {
                Ok(part) => return Ok((upstream, part)),
                Err(error) => {
                    let (replay, progress) = (Replay::of(exchange), Progress::of(exchange));
                    let (attempts, source) = (&mut context.attempts, upstream.source);
                    match attempts.after_failed_exchange(&self.upstreams, &error, source, replay, progress) {
                        RetryDecision::Retry => {}
                        RetryDecision::GiveUp => return Err(error),
                    }
                }
            }
        }
    }

    fn release(&self, upstream: UpstreamSide) {
        let UpstreamSide { session, address, upload, .. } = upstream;
        match session {
            UpstreamSession::Http1(session) if upload == UploadState::Sent => {
                if let Some(connection) = session.into_reusable() {
                    self.connector.pool(connection, &address, Instant::now());
                }
            }
            // A shared connection returns to its pool by itself.
            UpstreamSession::Http1(_) | UpstreamSession::Http2(_) => {}
        }
    }
}

/// Runs upstream I/O and cancels it when the client disconnects, so that the upstream stops working for it.
async fn while_client_connected<T>(
    exchange: &mut Exchange,
    upstream_io: impl Future<Output = pingora_core::Result<T>>,
) -> pingora_core::Result<T> {
    tokio::select! {
        biased;
        done = upstream_io => done.map_err(PingoraError::into_up),
        disconnected = exchange.read_body_or_idle(true) => match disconnected {
            Err(error) => Err(error.into_down()),
            Ok(_) => Err(PingoraError::explain(ErrorType::InvalidHTTPHeader, "an unannounced request body").into_down()),
        },
    }
}

/// Answers `Expect` of an HTTP/1.1 client: interim responses of an HTTP/2 upstream do not come through.
async fn tell_to_continue(exchange: &mut Exchange) -> pingora_core::Result<()> {
    if exchange.get_header(EXPECT).is_some() {
        let keepalive = exchange.get_keepalive();
        exchange.write_continue_response().await.map_err(PingoraError::into_down)?;
        // Writing the 100 response switches keep-alive off.
        exchange.set_keepalive(keepalive);
    }
    Ok(())
}

/// The next piece of the request's body: what has been read already, or what the client sends next.
async fn next_piece(unsent: &mut Option<Bytes>, exchange: &mut Exchange) -> pingora_core::Result<(Bytes, Remaining)> {
    let piece = match unsent.take() {
        Some(piece) => Some(piece),
        None => exchange.read_body_or_idle(false).await.map_err(PingoraError::into_down)?,
    };
    let is_last = piece.is_none() || exchange.is_body_done();
    Ok((piece.unwrap_or_default(), Remaining::after(is_last)))
}

/// Whether it can be noticed that the client disconnects. Pingora would take what an HTTP/1.1 client still sends of its body
/// for bytes behind the body.
fn can_watch_client(exchange: &mut Exchange) -> bool {
    exchange.is_http2() || exchange.is_body_done()
}

/// Moves the `Host` into the URI, where HTTP/2 has it.
fn with_authority(mut request: RequestHeader) -> pingora_core::Result<RequestHeader> {
    let host = request.remove_header(&HOST).ok_or_else(|| internal_error("a request without a host"))?;
    let mut parts = uri::Parts::default();
    parts.scheme = Some(uri::Scheme::HTTPS);
    parts.authority = uri::Authority::try_from(host.as_bytes()).ok();
    parts.path_and_query = request.uri.path_and_query().cloned();
    let target = Uri::from_parts(parts).map_err(|_| internal_error("a host that is no authority"))?;
    request.set_uri(target);
    // The gateway has answered it.
    request.remove_header(&EXPECT);
    Ok(request)
}

/// Removes the identity headers of an upstream's trailers, as of its response headers.
fn sanitize_trailers(mut trailers: HeaderMap) -> HeaderMap {
    let unwanted: Vec<_> = trailers.keys().filter(|name| is_look_alike(name.as_str().as_bytes())).cloned().collect();
    for name in unwanted {
        trailers.remove(name);
    }
    trailers
}

impl UpstreamSide {
    fn new(connected: UpstreamConnection, address: Arc<Address>) -> Self {
        let UpstreamConnection { transport, source } = connected;
        let session = match transport {
            UpstreamTransport::Http1(connection) => {
                UpstreamSession::Http1(Box::new(Http1Exchange::new(connection, &address.peer)))
            }
            UpstreamTransport::Http2(session) => {
                UpstreamSession::Http2(Box::new(Http2Exchange::new(session, &address.peer)))
            }
        };
        Self { session, address, source, upload: UploadState::Sending, unsent: None }
    }

    /// Counts the request no longer for its address if the upstream has done its part. The client may send its next request as soon as it
    /// has the end of the response.
    fn release_address(&self, attempts: &mut UpstreamAttempts) {
        if self.upload == UploadState::Sent {
            attempts.release_address();
        }
    }

    /// Sends the request, with what an earlier attempt has read of its body, until the response begins.
    async fn begin(&mut self, exchange: &mut Exchange, head: &UpstreamHead) -> pingora_core::Result<HttpTask> {
        let (request, body) = match head {
            UpstreamHead::Map { request, body } => (request, *body),
            UpstreamHead::Encoded(head) => {
                self.upload = UploadState::Sent;
                return while_client_connected(exchange, self.session.exchange_head(head)).await;
            }
        };
        self.session.write_header(RequestHeader::clone(request), body).await.map_err(PingoraError::into_up)?;
        if body == Remaining::Nothing {
            self.upload = UploadState::Sent;
        } else {
            // A body that was too long to be kept is not sent again.
            let read_before = exchange.get_retry_buffer().unwrap_or_default();
            self.session.begin_piece(read_before, Remaining::after(exchange.is_body_done()));
        }
        self.next_part(exchange).await
    }

    /// The next part of the response. Sends the request's body meanwhile, and ends when the client disconnects, so that
    /// the upstream stops working for it.
    async fn next_part(&mut self, exchange: &mut Exchange) -> pingora_core::Result<HttpTask> {
        loop {
            if self.upload == UploadState::Sending && !self.session.is_writing() {
                tokio::select! {
                    part = self.session.read_part() => return part.map_err(PingoraError::into_up),
                    next = next_piece(&mut self.unsent, exchange) => {
                        let (piece, remaining) = next?;
                        self.session.begin_piece(piece, remaining);
                    }
                }
                continue;
            }
            let progress = match can_watch_client(exchange) {
                true => while_client_connected(exchange, self.session.progress()).await?,
                false => self.session.progress().await.map_err(PingoraError::into_up)?,
            };
            match progress {
                ExchangeStep::Response(part) => return Ok(part),
                ExchangeStep::Piece(end) => self.note_piece(&end),
            }
        }
    }

    /// Reads what has come of the request's body before the response begins, because Pingora closes the connection of a request whose body
    /// is unread by then. It is sent during or after the response.
    fn read_arrived_body(&mut self, exchange: &mut Exchange) -> pingora_core::Result<()> {
        if self.upload == UploadState::Sent {
            return Ok(());
        }
        let mut bytes = Vec::new();
        while bytes.len() < ENOUGH_BODY && !exchange.is_body_done() {
            let Some(read) = unconstrained(exchange.read_body_or_idle(false)).now_or_never() else { break };
            let Some(piece) = read.map_err(PingoraError::into_down)? else { break };
            bytes.extend_from_slice(&piece);
        }
        if self.upload == UploadState::Sending {
            self.unsent = Some(bytes.into());
        }
        Ok(())
    }

    /// Sends what is left of the request's body after a complete response.
    async fn send_rest(&mut self, exchange: &mut Exchange) -> pingora_core::Result<()> {
        while self.upload == UploadState::Sending {
            if !self.session.is_writing() {
                let (piece, remaining) = next_piece(&mut self.unsent, exchange).await?;
                self.session.begin_piece(piece, remaining);
            }
            let sending = self.session.finish_piece();
            let end = match can_watch_client(exchange) {
                // The client's next request does not wait for an upstream that has answered and does not take the rest of this one at once.
                true if !exchange.is_http2() => unconstrained(sending).now_or_never(),
                true => Some(while_client_connected(exchange, sending.map(Ok)).await?),
                false => Some(sending.await),
            };
            match end {
                Some(end) => self.note_piece(&end),
                None => self.upload = UploadState::Abandoned,
            }
        }
        Ok(())
    }

    /// Takes note of the end of a piece.
    fn note_piece(&mut self, end: &PieceEnd) {
        match end {
            PieceEnd::Sent => {}
            PieceEnd::BodySent => self.upload = UploadState::Sent,
            PieceEnd::Refused(error) => {
                tracing::debug!(error = %error.etype().as_str(), "the upstream takes no more of the request's body");
                self.upload = UploadState::Abandoned;
            }
        }
    }
}
