//! Carries a request of the fast lane to its upstream and the response back. Which address is tried, and whether a failed attempt
//! is repeated, is left to [`connect`](super::super::connect).

use std::future::poll_fn;
use std::io::Write;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use http::StatusCode;
use pingora_core::protocols::Stream;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error as PingoraError, ErrorType, RetryType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::chunks::InvalidChunk;
use super::super::connect::{Progress, Replay, RetryDecision, UpstreamConnection};
use super::super::connection::Connection;
use super::super::failure::internal_error;
use super::FastExchange;
use super::body::ResponseBody;
use super::response::{self, InvalidResponse, ResponseHead};
use crate::config::UpstreamProtocol;
use crate::pipeline::forward;
use crate::upstreams::Address;

/// The size of the first read from an upstream: a head and a small body.
const FIRST_READ: usize = 4 * 1024;

/// The size of a read of a longer body.
const READ: usize = 32 * 1024;

impl FastExchange<'_> {
    /// Sends the request to its upstream and relays the response.
    pub(super) async fn relay(&mut self) -> pingora_core::Result<()> {
        let mut received = Vec::with_capacity(FIRST_READ);
        let (mut upstream, address) = self.send(&mut received).await?;
        let response = loop {
            let response = self.read_head(&mut upstream, &address.peer, &mut received).await?;
            self.note_response(response.status)?;
            if !response.status.is_informational() {
                break response;
            }
            // A 100 that the client has not asked for is not passed on.
            if response.status != StatusCode::CONTINUE {
                let head = self.client_head(&response, &received)?;
                self.write_client(&head).await?;
            }
            received.drain(..response.length);
        };
        let is_reusable = self.relay_response(&mut upstream, &address.peer, &response, received).await?;
        if is_reusable {
            self.gateway.pool(Some(upstream), &address.peer);
        }
        Ok(())
    }

    /// Sends the head to an address of the upstream, and waits for the beginning of the response.
    async fn send(&mut self, received: &mut Vec<u8>) -> pingora_core::Result<(Stream, Arc<Address>)> {
        let head = self.upstream_head()?;
        loop {
            let connected = self.gateway.connect(&mut self.context.attempts, UpstreamProtocol::Http1).await?;
            let UpstreamConnection { transport, address, source } = connected;
            let mut stream = transport.into_stream()?;
            let first = async {
                write_upstream(&mut stream, &head, &address.peer).await?;
                read_upstream(&mut stream, &address.peer, received).await
            };
            let error = match while_connected(self.connection, first).await {
                Ok(()) => return Ok((stream, address)),
                Err(error) => error,
            };
            let (attempts, replay) = (&mut self.context.attempts, Replay::of_method(&self.request.http_method()));
            let upstreams = &self.gateway.upstreams;
            match attempts.after_failed_exchange(upstreams, &error, source, replay, Progress::default()) {
                RetryDecision::Retry => {}
                RetryDecision::GiveUp => return Err(error),
            }
        }
    }

    /// The head of the request for the upstream.
    fn upstream_head(&mut self) -> pingora_core::Result<Vec<u8>> {
        let (Some(permit), Some(arrival)) = (&self.context.permit, &self.context.arrival) else {
            return Err(internal_error("no permit"));
        };
        let head = super::request_head(self.request, self.connection);
        forward::write_head(&self.gateway.gate, permit, arrival, &head).map_err(|error| {
            self.context.error = Some(error);
            internal_error("the head cannot be forwarded")
        })
    }

    /// Reads on until the head of a response is complete.
    async fn read_head(
        &mut self,
        upstream: &mut Stream,
        peer: &HttpPeer,
        received: &mut Vec<u8>,
    ) -> pingora_core::Result<ResponseHead> {
        loop {
            match ResponseHead::read(received, self.request.is_head()) {
                Ok(Some(response)) => return Ok(response),
                Ok(None) if received.len() > response::MOST_BYTES => {
                    return Err(invalid(InvalidResponse("the head of the response is too large")));
                }
                Ok(None) => while_connected(self.connection, read_upstream(upstream, peer, received)).await?,
                Err(fault) => return Err(invalid(fault)),
            }
        }
    }

    /// The head of a response for the client.
    fn client_head(&self, response: &ResponseHead, received: &[u8]) -> pingora_core::Result<Vec<u8>> {
        let (Some(permit), Some(arrival)) = (&self.context.permit, &self.context.arrival) else {
            return Err(internal_error("no permit"));
        };
        let mut out = Vec::with_capacity(received.len() + 512);
        response.write(received, permit.rule.cors, arrival, self.client, &mut out);
        Ok(out)
    }

    /// Relays the final response, its body as it comes. Returns whether the upstream's connection can be used again.
    async fn relay_response(
        &mut self,
        upstream: &mut Stream,
        peer: &HttpPeer,
        response: &ResponseHead,
        mut received: Vec<u8>,
    ) -> pingora_core::Result<bool> {
        let mut body = response.body;
        self.close_if_draining();
        let mut out = self.client_head(response, &received)?;
        let mut is_clean = take_body(&mut body, &received[response.length..], &mut out)?;
        self.status = response.status.as_u16();
        self.write_client(&out).await?;
        self.body_bytes += received.len() - response.length;
        while !body.is_complete() {
            received.clear();
            received.reserve(READ);
            let has_ended = match while_connected(self.connection, read_upstream(upstream, peer, &mut received)).await {
                Ok(()) => false,
                Err(error) if body == ResponseBody::UntilClose && *error.etype() == ErrorType::ConnectionClosed => true,
                Err(error) => return Err(error),
            };
            out.clear();
            if has_ended {
                out.extend_from_slice(b"0\r\n\r\n");
                self.write_client(&out).await?;
                return Ok(false);
            }
            is_clean &= take_body(&mut body, &received, &mut out)?;
            self.write_client(&out).await?;
            self.body_bytes += received.len();
        }
        Ok(is_clean && response.keeps_open)
    }

    /// Writes to the client and flushes: what has come is passed on, whatever comes next.
    pub(super) async fn write_client(&mut self, bytes: &[u8]) -> pingora_core::Result<()> {
        let stalled = self.gateway.gate.limits.load().stalled.get();
        let connection = &mut *self.connection;
        let writing = async {
            connection.write_all(bytes).await?;
            connection.flush().await
        };
        let written = pingora_timeout::timeout(stalled, writing).await;
        let written = written
            .map_err(|_| PingoraError::explain(ErrorType::WriteTimedout, "writing to the client").into_down())?;
        // Not a timeout if the client was below the minimum rate: the connection has counted that.
        written
            .map_err(|cause| PingoraError::because(ErrorType::WriteError, "writing to the client", cause).into_down())
    }
}

/// Adds what belongs to the body to what the client gets. Returns whether nothing else has come.
fn take_body(body: &mut ResponseBody, bytes: &[u8], out: &mut Vec<u8>) -> pingora_core::Result<bool> {
    let count =
        body.take(bytes).map_err(|InvalidChunk| invalid(InvalidResponse("a chunk of the response is malformed")))?;
    if *body != ResponseBody::UntilClose {
        out.extend_from_slice(&bytes[..count]);
    } else if count > 0 {
        // Writing into memory does not fail.
        let _ = write!(out, "{count:x}\r\n");
        out.extend_from_slice(&bytes[..count]);
        out.extend_from_slice(b"\r\n");
    }
    Ok(count == bytes.len())
}

/// A response that cannot be relayed.
fn invalid(fault: InvalidResponse) -> Box<PingoraError> {
    PingoraError::explain(ErrorType::InvalidHTTPHeader, fault.0).into_up()
}

async fn write_upstream(stream: &mut Stream, bytes: &[u8], peer: &HttpPeer) -> pingora_core::Result<()> {
    let writing = async {
        stream.write_all(bytes).await?;
        stream.flush().await
    };
    let written = match peer.options.write_timeout {
        Some(limit) => pingora_timeout::timeout(limit, writing)
            .await
            .map_err(|_| PingoraError::explain(ErrorType::WriteTimedout, "writing the request").into_up())?,
        None => writing.await,
    };
    written.map_err(|cause| {
        let mut error = PingoraError::because(ErrorType::WriteError, "writing the request", cause);
        error.retry = RetryType::ReusedOnly;
        error.into_up()
    })
}

/// Reads something from an upstream. A connection that ends is an error.
async fn read_upstream(stream: &mut Stream, peer: &HttpPeer, received: &mut Vec<u8>) -> pingora_core::Result<()> {
    let is_first = received.is_empty();
    let reading = stream.read_buf(received);
    let read = match peer.options.read_timeout {
        Some(limit) => pingora_timeout::timeout(limit, reading)
            .await
            .map_err(|_| PingoraError::explain(ErrorType::ReadTimedout, "reading the response").into_up())?,
        None => reading.await,
    };
    let mut error = match read {
        Ok(0) => PingoraError::explain(ErrorType::ConnectionClosed, "the upstream closed its connection"),
        Ok(_) => return Ok(()),
        Err(cause) => PingoraError::because(ErrorType::ReadError, "reading the response", cause),
    };
    if is_first {
        error.retry = RetryType::ReusedOnly;
    }
    Err(error.into_up())
}

/// Runs upstream I/O and gives it up when the client disconnects, so that the upstream stops working for it.
async fn while_connected<T>(
    connection: &mut Connection,
    upstream_io: impl Future<Output = pingora_core::Result<T>>,
) -> pingora_core::Result<T> {
    let mut upstream_io = pin!(upstream_io);
    poll_fn(|cx| match upstream_io.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(done),
        Poll::Pending => connection.poll_disconnected(cx).map(|()| {
            Err(PingoraError::explain(ErrorType::ConnectionClosed, "the client closed its connection").into_down())
        }),
    })
    .await
}
