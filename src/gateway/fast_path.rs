//! The fast path: sends a bodyless GET as bytes and relays the response in one task, without the tasks and channels that
//! Pingora's proxy needs for bodies in both directions. On HTTP/2 it also bounds what a stream holds that is not read.
//! Parsing and framing are left to Pingora's HTTP/1 sessions, retries to [`connect`](super::connect), failures to
//! `fail_to_proxy`.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderValue, Version};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::v1::client::HttpSession as UpstreamExchange;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error as PingoraError, ErrorType, RetryType};
use pingora_http::ResponseHeader;
use pingora_proxy::Session as Exchange;
use tokio::io::AsyncWriteExt;

use super::Gateway;
use super::connect::{Progress, Replay, RetryDecision, UpstreamConnection};
use super::context::RequestContext;
use super::failure::internal_error;
use super::idle_pool::PooledConnection;
use super::request_head::{HeaderMapLines, request_head};
use super::response::copy_response_header;
use super::short_reads::{PIECE, ShortReads};
use crate::config::UpstreamProtocol;
use crate::pipeline::forward;
use crate::pipeline::trace::replace_traceparent;
use crate::upstreams::Address;

impl Gateway {
    /// Sends a bodyless GET to its upstream and relays the response.
    pub(super) async fn proxy_bodyless_get(
        &self,
        exchange: &mut Exchange,
        context: &mut RequestContext,
    ) -> pingora_core::Result<()> {
        let mut head = self.encode_head(exchange, context)?;
        let (mut upstream, opened, address) = self.send_with_retry(exchange, context, &mut head).await?;
        let response = loop {
            let header = upstream.resp_header().map(copy_response_header);
            let mut header = header.ok_or_else(|| internal_error("a response without a header"))?;
            self.rewrite_response(&mut header, context)?;
            if !header.status.is_informational() {
                break header;
            }
            exchange.write_response_header(Box::new(header), false).await.map_err(PingoraError::into_down)?;
            while_client_connected(exchange, upstream.read_response()).await?;
        };
        self.close_if_draining(exchange);
        self.relay_response(exchange, &mut upstream, response).await?;
        upstream.respect_keepalive();
        let stream = upstream.reuse().await;
        let stream = if exchange.is_http2() { stream.and_then(ShortReads::unwrap) } else { stream };
        self.pool(stream, opened, &address);
        Ok(())
    }

    fn encode_head(&self, exchange: &Exchange, context: &mut RequestContext) -> pingora_core::Result<Vec<u8>> {
        let (Some(permit), Some(arrival)) = (&context.permit, &context.arrival) else {
            return Err(internal_error("no permit"));
        };
        let lines = HeaderMapLines(&exchange.req_header().headers);
        forward::write_head(&self.gate, permit, arrival, &request_head(exchange, &lines)).map_err(|error| {
            context.error = Some(error);
            internal_error("the head cannot be forwarded")
        })
    }

    /// Sends the head and waits for the response header.
    async fn send_with_retry(
        &self,
        exchange: &mut Exchange,
        context: &mut RequestContext,
        head: &mut [u8],
    ) -> pingora_core::Result<(Box<UpstreamExchange>, Instant, Arc<Address>)> {
        loop {
            let connected = self.connect(&mut context.attempts, UpstreamProtocol::Http1).await?;
            let UpstreamConnection { transport, address, source } = connected;
            if let Some(parent) = context.attempts.traceparent() {
                replace_traceparent(head, &parent);
            }
            let PooledConnection { stream, opened } = transport.into_connection()?;
            let stream = if exchange.is_http2() { ShortReads::wrap(stream) } else { stream };
            let response = async {
                let mut upstream = send(stream, head, &address.peer).await?;
                upstream.read_response().await?;
                Ok(upstream)
            };
            match while_client_connected(exchange, response).await {
                Ok(upstream) => return Ok((upstream, opened, address)),
                // A GET is idempotent and has no body, so it can be sent again.
                Err(error) => {
                    let (attempts, progress) = (&mut context.attempts, Progress::default());
                    match attempts.after_failed_exchange(&self.upstreams, &error, source, Replay::Safe, progress) {
                        RetryDecision::Retry => {}
                        RetryDecision::GiveUp => return Err(error),
                    }
                }
            }
        }
    }

    /// Relays the response header and then the body, one read at a time.
    async fn relay_response(
        &self,
        exchange: &mut Exchange,
        upstream: &mut UpstreamExchange,
        mut response: ResponseHeader,
    ) -> pingora_core::Result<()> {
        let done = upstream.is_body_done();
        let is_framed =
            response.headers.contains_key(CONTENT_LENGTH) || response.headers.contains_key(TRANSFER_ENCODING);
        if !done && !is_framed {
            // The upstream ends this body by closing its connection; chunks let the client keep its own open.
            response.set_version(Version::HTTP_11);
            response.insert_header(TRANSFER_ENCODING, HeaderValue::from_static("chunked"))?;
        }
        exchange.write_response_header(Box::new(response), done).await.map_err(PingoraError::into_down)?;
        let most = self.longest_write(exchange);
        while !upstream.is_body_done() {
            let bytes = while_client_connected(exchange, upstream.read_body_bytes()).await?;
            write_body(exchange, bytes, upstream.is_body_done(), most).await?;
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

/// Writes the request head. The session is boxed, because it is moved from future to future.
async fn send(mut stream: Stream, head: &[u8], peer: &HttpPeer) -> pingora_core::Result<Box<UpstreamExchange>> {
    let writing = async {
        stream.write_all(head).await?;
        stream.flush().await
    };
    let written = match peer.options.write_timeout {
        Some(limit) => pingora_timeout::timeout(limit, writing)
            .await
            .map_err(|_| PingoraError::explain(ErrorType::WriteTimedout, "writing the request head"))?,
        None => writing.await,
    };
    written.map_err(|cause| {
        let mut error = PingoraError::because(ErrorType::WriteError, "writing the request head", cause);
        error.retry = RetryType::ReusedOnly;
        error
    })?;
    let mut upstream = Box::new(UpstreamExchange::new_with_options(stream, peer));
    upstream.read_timeout = peer.options.read_timeout;
    Ok(upstream)
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
        exchange.write_response_body(Some(piece), false).await.map_err(PingoraError::into_down)?;
    }
    exchange.write_response_body(bytes, is_last).await.map_err(PingoraError::into_down)
}

/// Runs upstream I/O and cancels it when the client disconnects, so that the upstream stops working for it.
pub(super) async fn while_client_connected<T>(
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
