//! Carries HTTP/2 requests that are no bodyless GETs: relays the bodies of both directions in one task, one piece at a
//! time. Pingora's proxy reads half a megabyte of a response ahead, and a client may have a hundred streams that it does
//! not read. Framing is left to Pingora's HTTP/1 sessions, retries to [`connect`](super::connect), failures to
//! `fail_to_proxy`.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderValue, Version};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::HttpTask;
use pingora_core::protocols::http::v1::client::HttpSession as UpstreamExchange;
use pingora_core::{Error as PingoraError, ErrorSource};
use pingora_http::RequestHeader;
use pingora_proxy::Session as Exchange;

use super::Gateway;
use super::connect::{Progress, Replay, RetryDecision, UpstreamConnection};
use super::context::RequestContext;
use super::failure::internal_error;
use super::fast_path::{while_client_connected, write_body};
use super::short_reads::ShortReads;
use crate::domain::hop_by_hop::HOP_BY_HOP;
use crate::pipeline::forward;
use crate::upstreams::Address;

/// The upstream's side of an exchange.
struct UpstreamSide {
    session: UpstreamExchange,
    address: Arc<Address>,
    upload: UploadState,
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
    /// Sends an HTTP/2 request to its upstream and relays the response.
    pub(super) async fn proxy_http2(
        &self,
        exchange: &mut Exchange,
        context: &mut RequestContext,
    ) -> pingora_core::Result<()> {
        let request = self.rewrite_http2_request(exchange, context)?;
        if request.method.is_idempotent() {
            exchange.as_mut().enable_retry_buffering();
        }
        let (mut upstream, mut part) = self.send_http2_request(exchange, context, &request).await?;
        let (response, mut is_done) = loop {
            let HttpTask::Header(mut header, is_done) = part else {
                return Err(internal_error("a response without a header"));
            };
            self.rewrite_response(&mut header, context)?;
            if !header.status.is_informational() {
                break (header, is_done);
            }
            exchange.write_response_header(header, false).await.map_err(PingoraError::into_down)?;
            part = upstream.next_part(exchange).await?;
        };
        exchange.write_response_header(response, is_done).await.map_err(PingoraError::into_down)?;
        let most = self.longest_write(exchange);
        while !is_done {
            let HttpTask::Body(bytes, is_last) = upstream.next_part(exchange).await? else {
                return Err(internal_error("a response without an end"));
            };
            is_done = is_last;
            write_body(exchange, bytes, is_done, most).await?;
        }
        upstream.send_rest(exchange).await?;
        self.release(upstream).await;
        Ok(())
    }

    /// The request as the upstream gets it over HTTP/1.1.
    fn rewrite_http2_request(
        &self,
        exchange: &mut Exchange,
        context: &mut RequestContext,
    ) -> pingora_core::Result<RequestHeader> {
        let (Some(permit), Some(arrival)) = (&context.permit, &context.arrival) else {
            return Err(internal_error("no permit"));
        };
        let mut parts = http::request::Parts::from(exchange.req_header().clone());
        parts.version = Version::HTTP_11;
        for name in HOP_BY_HOP {
            parts.headers.remove(name);
        }
        if let (None, Some(authority)) = (parts.headers.get(HOST), parts.uri.authority()) {
            let host = HeaderValue::from_str(authority.as_str());
            parts.headers.insert(HOST, host.map_err(|_| internal_error("an authority that is no host"))?);
        }
        if !exchange.is_body_empty() && !parts.headers.contains_key(CONTENT_LENGTH) {
            parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let mut request = RequestHeader::from(parts);
        forward::rewrite_request(&self.gate, permit, arrival, &mut request).map_err(|error| {
            context.error = Some(error);
            internal_error("the head cannot be forwarded")
        })?;
        Ok(request)
    }

    /// Sends the request and waits for the response header.
    async fn send_http2_request(
        &self,
        exchange: &mut Exchange,
        context: &mut RequestContext,
        request: &RequestHeader,
    ) -> pingora_core::Result<(UpstreamSide, HttpTask)> {
        loop {
            let UpstreamConnection { stream, address, source } = self.connect(&mut context.attempts).await?;
            let mut upstream = UpstreamSide::new(stream, address);
            match upstream.begin(exchange, request).await {
                Ok(part) => return Ok((upstream, part)),
                Err(error) => {
                    let (replay, progress) = (Replay::of(exchange), Progress::of(exchange));
                    let attempts = &mut context.attempts;
                    match attempts.after_failed_exchange(&self.upstreams, &error, source, replay, progress) {
                        RetryDecision::Retry => {}
                        RetryDecision::GiveUp => return Err(error),
                    }
                }
            }
        }
    }

    async fn release(&self, upstream: UpstreamSide) {
        let UpstreamSide { mut session, address, upload } = upstream;
        if upload == UploadState::Sent {
            session.respect_keepalive();
            self.pool(session.reuse().await.and_then(ShortReads::unwrap), &address.peer);
        }
    }
}

impl UpstreamSide {
    fn new(stream: Stream, address: Arc<Address>) -> Self {
        let peer = &address.peer;
        let mut session = UpstreamExchange::new_with_options(ShortReads::wrap(stream), peer);
        session.read_timeout = peer.options.read_timeout;
        session.write_timeout = peer.options.write_timeout;
        Self { session, address, upload: UploadState::Sending }
    }

    /// Sends the request, with what an earlier attempt has read of its body, until the response begins.
    async fn begin(&mut self, exchange: &mut Exchange, request: &RequestHeader) -> pingora_core::Result<HttpTask> {
        self.session.write_request_header(Box::new(request.clone())).await.map_err(PingoraError::into_up)?;
        let read_before = exchange.as_ref().get_retry_buffer();
        let is_last = exchange.is_body_done();
        self.send(exchange, read_before, is_last).await?;
        self.next_part(exchange).await
    }

    /// The next part of the response. Sends the request's body meanwhile, and ends when the client disconnects, so that
    /// the upstream stops working for it.
    async fn next_part(&mut self, exchange: &mut Exchange) -> pingora_core::Result<HttpTask> {
        loop {
            let is_sending = self.upload == UploadState::Sending;
            tokio::select! {
                part = self.session.read_response_task() => return part.map_err(PingoraError::into_up),
                piece = exchange.read_body_or_idle(!is_sending) => {
                    let piece = piece.map_err(PingoraError::into_down)?;
                    let is_last = piece.is_none() || exchange.is_body_done();
                    self.send(exchange, piece, is_last).await?;
                }
            }
        }
    }

    /// Sends what is left of the request's body after a complete response.
    async fn send_rest(&mut self, exchange: &mut Exchange) -> pingora_core::Result<()> {
        while self.upload == UploadState::Sending {
            let piece = exchange.read_body_or_idle(false).await.map_err(PingoraError::into_down)?;
            let is_last = piece.is_none() || exchange.is_body_done();
            self.send(exchange, piece, is_last).await?;
        }
        Ok(())
    }

    /// Sends a piece of the request's body, unless the client disconnects meanwhile.
    async fn send(&mut self, exchange: &mut Exchange, piece: Option<Bytes>, is_last: bool) -> pingora_core::Result<()> {
        let written = while_client_connected(exchange, self.write(piece, is_last)).await;
        match written {
            Ok(()) if is_last => self.upload = UploadState::Sent,
            Ok(()) => {}
            Err(error) if error.esource() == &ErrorSource::Upstream => {
                tracing::debug!(error = %error.etype().as_str(), "the upstream takes no more of the request's body");
                self.upload = UploadState::Abandoned;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn write(&mut self, piece: Option<Bytes>, is_last: bool) -> pingora_core::Result<()> {
        // An empty chunk would end the body.
        if let Some(piece) = piece.filter(|piece| !piece.is_empty()) {
            self.session.write_body(&piece).await?;
        }
        if is_last {
            self.session.finish_body().await?;
        }
        Ok(())
    }
}
