//! Carries a request of the fast lane to its upstream and the response back. Which address is tried, and whether a failed attempt
//! is repeated, is left to [`connect`](super::super::connect).

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use http::StatusCode;
use pingora_core::upstreams::peer::PeerOptions;
use pingora_core::{Error as PingoraError, ErrorSource, ErrorType, RetryType};

use super::super::buffer::Buffer;
use super::super::chunks::InvalidChunk;
use super::super::connect::{Progress, Replay, RetryDecision, UpstreamConnection};
use super::super::connector::ConnectionSource;
use super::super::failure::internal_error;
use super::super::idle_pool::PooledConnection;
use super::super::receive::poll_receive;
use super::super::response_framing::{InvalidResponse, ResponseBody};
use super::FastExchange;
use super::client::{LaneClient, read_error};
use super::response::ResponseHead;
use super::upload::{LAST_CHUNK, RequestUpload, write_chunk};
use crate::config::UpstreamProtocol;
use crate::pipeline::trace::replace_traceparent;

/// The room for a read of a longer body of a response. Such a buffer is freed after the exchange instead of being kept by its thread, which
/// costs little beside the body.
const READ: usize = 32 * 1024;

/// A connection to an upstream, and the request on its way there.
struct LaneUpstream {
    connection: PooledConnection,
    upload: RequestUpload,
    /// How long it may take nothing, and how long it may send nothing.
    write_timeout: Option<Duration>,
    read_timeout: Option<Duration>,
    /// When the attempt began, if its connection came from the pool: the first wait for the response counts from then, which saves
    /// reading the clock. None after that wait.
    began: Option<Instant>,
    /// Whether anything of a response has come.
    has_begun: bool,
}

impl FastExchange<'_> {
    /// Sends the request to its upstream and relays the response.
    pub(super) async fn relay(&mut self) -> pingora_core::Result<()> {
        let mut received = Buffer::default();
        let mut upstream = self.send(&mut received).await?;
        // How many interim responses come is up to the upstream, which is trusted; `total_timeout` also limits them.
        let (response, now) = loop {
            let response = self.read_head(&mut upstream, &mut received).await?;
            let now = Instant::now();
            self.gateway.note_response(response.status, now, &mut self.context)?;
            if !response.status.is_informational() {
                break (response, now);
            }
            // No client of this lane waits for a 100: a request with `Expect` is left to Pingora's lane.
            if response.status != StatusCode::CONTINUE {
                let head = self.client_head(&response, &received, now)?;
                upstream.write_client(&mut self.client, &head).await?;
            }
            received.drain(..response.length);
        };
        let is_reusable = self.relay_response(&mut upstream, &response, now, received).await?;
        if is_reusable {
            self.reusable = Some(upstream.connection);
        }
        Ok(())
    }

    /// Sends the request to an address of the upstream, until the beginning of the response comes.
    async fn send(&mut self, received: &mut Buffer) -> pingora_core::Result<LaneUpstream> {
        // Over HTTP/1.1 an upstream cannot refuse a request before it works on it, so `AfterRefusal` never allows a retry here.
        let replay = Replay::of_method(&self.request.http_method());
        let head = super::request_head(self.request, self.client.connection);
        let head = self.gateway.upstream_head(&head, &mut self.context)?;
        let mut upload = RequestUpload::new(head, replay == Replay::Safe);
        loop {
            let connected = self.gateway.connect(&mut self.context.attempts, UpstreamProtocol::Http1).await?;
            let UpstreamConnection { transport, source } = connected;
            if let Some(parent) = self.context.attempts.traceparent() {
                replace_traceparent(upload.head(), &parent);
            }
            let began = self.context.attempts.started().filter(|_| source == ConnectionSource::Pool);
            let PeerOptions { write_timeout, read_timeout, .. } = self.context.attempts.address()?.peer.options;
            let connection = transport.into_connection()?;
            let mut upstream =
                LaneUpstream { connection, upload, write_timeout, read_timeout, began, has_begun: false };
            let error = match upstream.read(&mut self.client, received).await {
                Ok(()) => return Ok(upstream),
                Err(error) => error,
            };
            upload = upstream.upload;
            let replay = if upload.is_whole { replay } else { Replay::Unsafe };
            let progress = self.progress();
            let attempts = &mut self.context.attempts;
            match attempts.after_failed_exchange(&self.gateway.upstreams, &error, source, replay, progress) {
                RetryDecision::Retry => upload.rewind(),
                RetryDecision::GiveUp => return Err(error),
            }
        }
    }

    /// How far the exchange has come.
    pub(super) fn progress(&self) -> Progress {
        Progress { sent: self.client.received, received: self.body_bytes, is_uploading: !self.client.is_body_read() }
    }

    /// Reads on until the head of a response is complete. Each time it is parsed from its beginning: nearly all come with the first read,
    /// and unlike a client, an upstream does not send one byte at a time in order to cost the gateway time.
    async fn read_head(
        &mut self,
        upstream: &mut LaneUpstream,
        received: &mut Buffer,
    ) -> pingora_core::Result<ResponseHead> {
        loop {
            match ResponseHead::read(received, self.request.is_head()) {
                Ok(Some(response)) => return Ok(response),
                Ok(None) => upstream.read(&mut self.client, received).await?,
                Err(fault) => return Err(invalid(fault)),
            }
        }
    }

    /// The head for the client of a response that has arrived `now`.
    fn client_head(&self, response: &ResponseHead, received: &[u8], now: Instant) -> pingora_core::Result<Buffer> {
        let (Some(permit), Some(arrival)) = (&self.context.permit, &self.context.arrival) else {
            return Err(internal_error("no permit"));
        };
        let mut out = Buffer::new();
        response.write(received, permit.rule.cors, arrival, self.follows, now, &mut out);
        Ok(out)
    }

    /// Relays the final response: its head, which has arrived `now`, and its body as it arrives. Returns whether the upstream's connection can
    /// be used again.
    async fn relay_response(
        &mut self,
        upstream: &mut LaneUpstream,
        response: &ResponseHead,
        now: Instant,
        mut received: Buffer,
    ) -> pingora_core::Result<bool> {
        let mut body = response.body;
        self.close_if_draining();
        self.close_if_body_unread();
        let mut out = self.client_head(response, &received, now)?;
        let mut is_clean = take_body(&mut body, &received[response.length..], &mut out)?;
        self.status = response.status.as_u16();
        self.release_address(body, upstream);
        upstream.write_client(&mut self.client, &out).await?;
        self.body_bytes += received.len() - response.length;
        while !body.is_complete() {
            received.clear();
            received.reserve(READ);
            let has_ended = match upstream.read(&mut self.client, &mut received).await {
                Ok(()) => false,
                // The client may have closed its connection, too.
                Err(error)
                    if body == ResponseBody::UntilClose
                        && (error.esource(), error.etype())
                            == (&ErrorSource::Upstream, &ErrorType::ConnectionClosed) =>
                {
                    true
                }
                Err(error) => return Err(error),
            };
            out.clear();
            if has_ended {
                upstream.write_client(&mut self.client, LAST_CHUNK).await?;
                return Ok(false);
            }
            is_clean &= take_body(&mut body, &received, &mut out)?;
            self.release_address(body, upstream);
            upstream.write_client(&mut self.client, &out).await?;
            self.body_bytes += received.len();
        }
        Ok(is_clean && response.keeps_open && upstream.has_whole_request(&self.client))
    }

    /// Counts the exchange no longer for its address once the upstream has done its part. A client that has the end of the response
    /// may send its next request before this one is recorded.
    fn release_address(&mut self, body: ResponseBody, upstream: &LaneUpstream) {
        if body.is_complete() && upstream.has_whole_request(&self.client) {
            self.context.attempts.release_address();
        }
    }
}

impl LaneUpstream {
    /// Reads something from the upstream, while the rest of the request is sent on. A connection that ends is an error. Gives
    /// up when the client disconnects, so that the upstream stops working for it.
    async fn read(&mut self, client: &mut LaneClient<'_>, received: &mut Buffer) -> pingora_core::Result<()> {
        let (mut began, mut has_waited) = (self.began.take(), false);
        poll_fn(|cx| {
            let mut has_moved = false;
            let sent = self.poll_send(client, &mut has_moved, cx)?;
            match poll_receive(&mut self.connection.stream, received, cx) {
                Poll::Ready(Ok(1..)) => {
                    self.has_begun = true;
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Ok(0)) => {
                    let closed =
                        PingoraError::explain(ErrorType::ConnectionClosed, "the upstream closed its connection");
                    return Poll::Ready(Err(self.read_failure(closed)));
                }
                Poll::Ready(Err(cause)) => {
                    let failed = PingoraError::because(ErrorType::ReadError, "reading the response", cause);
                    return Poll::Ready(Err(self.read_failure(failed)));
                }
                Poll::Pending => {}
            }
            // Before that, it is the upload that reads what the client sends, and notices its end.
            if sent.is_ready() && client.connection.poll_disconnected(cx).is_ready() {
                return Poll::Ready(Err(client_gone()));
            }
            let begins = has_moved || !std::mem::replace(&mut has_waited, true);
            let begins = begins.then(|| began.take().unwrap_or_else(Instant::now));
            self.poll_timeout(client, begins, cx).map(Err)
        })
        .await
    }

    fn poll_send(
        &mut self,
        client: &mut LaneClient<'_>,
        has_moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> pingora_core::Result<Poll<()>> {
        match self.upload.poll(client, &mut self.connection.stream, has_moved, cx) {
            Poll::Ready(Ok(())) => Ok(Poll::Ready(())),
            Poll::Ready(Err(cause)) => Err(read_error(cause)),
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    /// The failure of a read. If the upload failed before, that is the cause, and is returned instead. Once the response has begun, it is
    /// the cause only if it was a reset: an upstream may take no more of a request and still end its response by closing.
    fn read_failure(&mut self, mut error: Box<PingoraError>) -> Box<PingoraError> {
        if self.has_begun && !self.upload.was_reset {
            return error.into_up();
        }
        if !self.has_begun {
            // For `connect`, which decides: on a connection from the pool, it had been closed before the request came.
            error.retry = RetryType::ReusedOnly;
        }
        self.upload.take_failure().unwrap_or_else(|| error.into_up())
    }

    /// Ready once the upstream has sent nothing, and taken no piece of the request to its end, for too long.
    fn poll_timeout(
        &self,
        client: &mut LaneClient<'_>,
        begins: Option<Instant>,
        cx: &mut Context<'_>,
    ) -> Poll<Box<PingoraError>> {
        let (limit, kind, action) = match self.upload.is_writing() {
            true => (self.write_timeout, ErrorType::WriteTimedout, "writing the request"),
            false => (self.read_timeout, ErrorType::ReadTimedout, "reading the response"),
        };
        let Some(limit) = limit else { return Poll::Pending };
        ready!(client.connection.poll_wait(begins, limit, cx));
        Poll::Ready(PingoraError::explain(kind, action).into_up())
    }

    /// Writes to the client. The rest of its request is sent on meanwhile, because the client may read nothing before that. The upstream's
    /// time limits rest: it is the client that is waited for, which has its own.
    async fn write_client(&mut self, client: &mut LaneClient<'_>, bytes: &[u8]) -> pingora_core::Result<()> {
        client.write(bytes, |client, cx| self.poll_send(client, &mut false, cx).map(drop)).await
    }

    /// Whether the upstream has taken the request to its end.
    fn has_whole_request(&self, client: &LaneClient<'_>) -> bool {
        client.is_body_read() && self.upload.has_ended(client) && !self.upload.has_failed()
    }
}

/// Takes bytes that the upstream sent, and adds what belongs to the body to what the client gets: of chunks only the data, in
/// chunks that the gateway writes, because a trailer could be an identity header. Returns whether all of the bytes belong to the body.
fn take_body(body: &mut ResponseBody, bytes: &[u8], out: &mut Vec<u8>) -> pingora_core::Result<bool> {
    let count = match body {
        ResponseBody::Length(left) => {
            let count = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
            *left -= count as u64;
            out.extend_from_slice(&bytes[..count]);
            count
        }
        ResponseBody::Chunked(chunks) => {
            let mut data = Vec::with_capacity(bytes.len());
            let count = chunks.decode(bytes, |piece| data.extend_from_slice(piece));
            let count =
                count.map_err(|InvalidChunk| invalid(InvalidResponse("a chunk of the response is malformed")))?;
            write_chunk(out, &data);
            if chunks.is_done() {
                out.extend_from_slice(LAST_CHUNK);
            }
            count
        }
        // The client gets it in chunks, so that its connection can stay open.
        ResponseBody::UntilClose => {
            write_chunk(out, bytes);
            bytes.len()
        }
    };
    Ok(count == bytes.len())
}

/// A response that cannot be relayed.
fn invalid(fault: InvalidResponse) -> Box<PingoraError> {
    PingoraError::explain(ErrorType::InvalidHTTPHeader, fault.0).into_up()
}

fn client_gone() -> Box<PingoraError> {
    PingoraError::explain(ErrorType::ConnectionClosed, "the client closed its connection").into_down()
}
