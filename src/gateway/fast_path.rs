//! The fast path: sends a bodyless GET as bytes and relays the response in one task, without the tasks and channels that
//! Pingora's proxy needs for bodies in both directions. On HTTP/2 it also bounds what a stream holds that is not read.
//! Parsing is left to [`http1_exchange`](super::http1_exchange), retries to
//! [`connect`](super::connect), failures to `fail_to_proxy`.

use std::sync::Arc;

use bytes::Bytes;
use pingora_core::protocols::http::HttpTask;
use pingora_core::{Error as PingoraError, ErrorType};
use pingora_proxy::Session as Exchange;

use super::Gateway;
use super::buffer::Buffer;
use super::connect::{Progress, Replay, RetryDecision, UpstreamConnection};
use super::context::RequestContext;
use super::failure::internal_error;
use super::http1_exchange::{Http1Exchange, PIECE};
use super::request_head::{HeaderMapLines, request_head};
use super::response::{flush, frame_response, write_informational};
use super::upstream_session::Remaining;
use crate::config::UpstreamProtocol;
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
        let (mut upstream, mut part, address) = self.send_with_retry(exchange, context, &mut head).await?;
        let (mut response, is_done) = loop {
            let HttpTask::Header(mut header, is_done) = part else {
                return Err(internal_error("a response without a header"));
            };
            self.rewrite_response(&mut header, context)?;
            if !header.status.is_informational() {
                break (header, is_done);
            }
            write_informational(exchange, header).await?;
            part = while_client_connected(exchange, upstream.read_part()).await?;
        };
        self.close_if_draining(exchange);
        frame_response(exchange, &mut response, Remaining::after(is_done))?;
        // What has come with the head is read before the head is written: if it is malformed, the client gets a 1502.
        let ready = if is_done { None } else { upstream.next_read_part().map_err(PingoraError::into_up)? };
        exchange.write_response_header(response, is_done).await.map_err(PingoraError::into_down)?;
        if !is_done {
            self.relay_response_body(exchange, &mut upstream, ready).await?;
        }
        if let Some(connection) = upstream.into_reusable() {
            self.connector.pool(connection, &address);
        }
        Ok(())
    }

    /// Relays the body, one read at a time; `ready` has been read already.
    async fn relay_response_body(
        &self,
        exchange: &mut Exchange,
        upstream: &mut Http1Exchange,
        mut ready: Option<HttpTask>,
    ) -> pingora_core::Result<()> {
        let most = self.longest_write(exchange);
        loop {
            let part = match ready.take() {
                Some(part) => part,
                None => {
                    flush(exchange).await?;
                    while_client_connected(exchange, upstream.read_part()).await?
                }
            };
            let HttpTask::Body(bytes, is_last) = part else { return Err(internal_error("a response without an end")) };
            write_body(exchange, bytes, is_last, most).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    fn encode_head(&self, exchange: &Exchange, context: &mut RequestContext) -> pingora_core::Result<Buffer> {
        let lines = HeaderMapLines(&exchange.req_header().headers);
        self.upstream_head(&request_head(exchange, &lines), context)
    }

    /// Sends the head and waits for the response header.
    async fn send_with_retry(
        &self,
        exchange: &mut Exchange,
        context: &mut RequestContext,
        head: &mut [u8],
    ) -> pingora_core::Result<(Box<Http1Exchange>, HttpTask, Arc<Address>)> {
        loop {
            let connected = self.connect(&mut context.attempts, UpstreamProtocol::Http1).await?;
            let UpstreamConnection { transport, address, source } = connected;
            if let Some(parent) = context.attempts.traceparent() {
                replace_traceparent(head, &parent);
            }
            // Boxed, because it is moved from future to future.
            let mut upstream = Box::new(Http1Exchange::new(transport.into_connection()?, &address.peer));
            let response = async {
                upstream.write_head(head).await?;
                upstream.read_part().await
            };
            match while_client_connected(exchange, response).await {
                Ok(part) => return Ok((upstream, part, address)),
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
