//! The request on its way to the upstream: its head, and its body as the client sends it. Once the
//! upstream has taken the first bytes, it reads from the client only when the upstream has taken what was read before, so that a slow
//! upstream slows the client down.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pingora_core::protocols::Stream;
use pingora_core::{Error as PingoraError, ErrorType, RetryType};
use tokio::io::AsyncWrite;

use super::super::buffer::Buffer;
use super::client::LaneClient;

/// A request is kept, to be sent again after a failed attempt, until more of it than this has been sent. Pingora's lane keeps bodies of
/// up to this size.
const KEPT: usize = 64 * 1024;

/// A request on its way to the upstream.
pub(super) struct RequestUpload {
    /// The head, and what has been read of the body, as the upstream gets them.
    out: Buffer,
    /// How much of it has been written.
    written: usize,
    /// Whether the upstream has taken anything of the request, in this attempt.
    has_begun: bool,
    is_flushed: bool,
    /// The data of a chunk before it is encoded.
    chunk: Buffer,
    /// `out` is emptied once it is longer than this and the upstream has all of it.
    kept: usize,
    /// Whether `out` still begins with the head, so that all of it can be sent again.
    pub(super) is_whole: bool,
    /// Why the upstream takes no more. It may have answered before.
    failure: Option<Box<PingoraError>>,
    /// Whether that is a reset. The socket reports it only once, so a later read finds the end of the stream instead.
    pub(super) was_reset: bool,
}

impl RequestUpload {
    /// Begins with a head. A request that `can_repeat` is kept as long as it is short.
    pub(super) fn new(head: Buffer, can_repeat: bool) -> Self {
        let kept = if can_repeat { KEPT } else { 0 };
        Self {
            out: head,
            written: 0,
            has_begun: false,
            is_flushed: false,
            chunk: Buffer::default(),
            kept,
            is_whole: true,
            failure: None,
            was_reset: false,
        }
    }

    /// What the next attempt sends, from the head on.
    pub(super) fn head(&mut self) -> &mut [u8] {
        &mut self.out
    }

    /// Begins again, for another attempt.
    pub(super) fn rewind(&mut self) {
        (self.written, self.has_begun, self.is_flushed) = (0, false, false);
        (self.failure, self.was_reset) = (None, false);
    }

    /// Whether the upstream has yet to take something.
    pub(super) fn is_writing(&self) -> bool {
        self.failure.is_none() && (self.written < self.out.len() || !self.is_flushed)
    }

    /// Whether the upstream has everything, or takes no more.
    pub(super) fn has_ended(&self, client: &LaneClient<'_>) -> bool {
        self.failure.is_some() || client.is_body_read() && !self.is_writing()
    }

    /// Whether the upstream takes no more.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Why the upstream has not taken everything.
    pub(super) fn take_failure(&mut self) -> Option<Box<PingoraError>> {
        self.failure.take()
    }

    /// Sends on what can be sent, and sets `progress` once a piece was read or written to its end. Ready once nothing is left to send. Fails if the client
    /// does; an upstream that takes no more only ends the upload, because its response may tell why.
    pub(super) fn poll(
        &mut self,
        client: &mut LaneClient<'_>,
        upstream: &mut Stream,
        progress: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.has_ended(client) {
            // Also before the first write, so that the head and a small body leave together.
            if !client.is_body_read() && (!self.has_begun || !self.is_writing()) {
                match self.poll_fill(client, cx)? {
                    Poll::Ready(()) => *progress = true,
                    Poll::Pending if !self.is_writing() => return Poll::Pending,
                    Poll::Pending => {}
                }
            }
            match ready!(self.poll_write(upstream, cx)) {
                Ok(()) => *progress = true,
                Err(cause) => {
                    self.was_reset = cause.kind() == io::ErrorKind::ConnectionReset;
                    let mut error = PingoraError::because(ErrorType::WriteError, "writing the request", cause);
                    error.retry = RetryType::ReusedOnly;
                    self.failure = Some(error.into_up());
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads from the client, and adds it as the upstream gets it. The gateway writes chunks of its own: how the client has divided its body, and
    /// what it has added to the chunks, is between the client and the gateway.
    ///
    /// Until the upstream has taken something of the request, all that the client sends is collected. That is little, because the first
    /// write of a request takes something at once.
    fn poll_fill(&mut self, client: &mut LaneClient<'_>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_writing() && self.out.len() > self.kept {
            self.out.clear();
            (self.written, self.is_whole) = (0, false);
        }
        if client.is_chunked() {
            self.chunk.clear();
            ready!(client.poll_body(&mut self.chunk, cx))?;
            write_chunk(&mut self.out, &self.chunk);
            if client.is_body_read() {
                self.out.extend_from_slice(LAST_CHUNK);
            }
        } else {
            ready!(client.poll_body(&mut self.out, cx))?;
        }
        self.is_flushed = false;
        Poll::Ready(Ok(()))
    }

    fn poll_write(&mut self, upstream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() {
            match ready!(Pin::new(&mut *upstream).poll_write(cx, &self.out[self.written..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => {
                    self.written += count;
                    self.has_begun = true;
                }
            }
        }
        ready!(Pin::new(upstream).poll_flush(cx))?;
        self.is_flushed = true;
        Poll::Ready(Ok(()))
    }
}

/// The end of a chunked body without trailers.
pub(super) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Writes data as one chunk. An empty one would end the body.
pub(super) fn write_chunk(out: &mut Vec<u8>, data: &[u8]) {
    if !data.is_empty() {
        // Writing into memory does not fail.
        let _ = write!(out, "{:x}\r\n", data.len());
        out.extend_from_slice(data);
        out.extend_from_slice(b"\r\n");
    }
}
