//! The HTTP/2 side of a [`Connection`]: passes bytes between the transport and h2, ends streams whose request body is too
//! slow and connections whose client floods them. What the bytes mean is found by [`http2`](super::http2).

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::buffer::Buffer;
use super::http2::{self, FrameFlood, Http2Frames, SlowUpload};
use super::{ClientLimits, Connection};

/// The most bytes of a flood that are discarded.
const DISCARD_LIMIT: usize = 1 << 20;
const DISCARD_PIECE: usize = 4096;

/// The most bytes that are collected before they are written: a large frame, and the heads of others.
const MOST_OUT: usize = 32 * 1024;

/// What an HTTP/2 connection has besides.
pub(super) struct Http2Connection {
    frames: Http2Frames,
    /// Resets of streams whose body was too slow, for h2 to read as if the client had sent them.
    resets: Vec<u8>,
    floods: IntCounter,
    /// A flood has ended the connection: nothing more is read or written.
    is_flooded: bool,
    /// What h2 has written and the transport has not taken.
    out: Buffer,
    /// How much of that the transport has taken.
    out_written: usize,
    /// The rest has waited for the tasks that were ready.
    has_yielded: bool,
}

impl Http2Connection {
    pub(super) fn new(limits: &ClientLimits) -> Self {
        Self {
            frames: Http2Frames::new(limits.body.clone()),
            resets: Vec::new(),
            floods: limits.frame_floods.clone(),
            is_flooded: false,
            out: Buffer::default(),
            out_written: 0,
            has_yielded: false,
        }
    }

    /// Gives h2 resets to read. Returns whether there were any.
    fn give_resets(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let count = self.resets.len().min(buffer.remaining());
        buffer.put_slice(&self.resets[..count]);
        self.resets.drain(..count);
        count > 0
    }
}

impl Connection {
    pub(super) fn is_flooded(&self) -> bool {
        self.http2.as_ref().is_some_and(|http2| http2.is_flooded)
    }

    /// Reads HTTP/2. Pingora waits for the preface without a timeout, so the head deadline covers it; after the preface
    /// Pingora's idle timeout applies. An empty read is the end of the connection for Pingora.
    pub(super) fn poll_http2(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (Some(http2), Some(inner)) = (&mut self.http2, &mut self.inner) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        if http2.is_flooded || http2.give_resets(buffer) {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        if let Poll::Ready(result) = Pin::new(inner).poll_read(cx, buffer) {
            if let Err(FrameFlood) = http2.frames.receive(&buffer.filled()[before..]) {
                buffer.set_filled(before);
                self.end_flood(cx);
            }
            return Poll::Ready(result);
        }
        if http2.frames.is_in_preface() {
            return self.poll_head_deadline(cx).map(Ok);
        }
        self.deadline.drop_timer();
        let slow = http2.frames.poll_slow_upload(cx);
        if let Poll::Ready(Err(error)) = self.poll_own_frames(cx) {
            return Poll::Ready(Err(error));
        }
        match ready!(slow) {
            SlowUpload::Connection => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            SlowUpload::Streams(streams) => {
                self.reset_streams(&streams, buffer);
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Resets streams on both sides: h2 gives them up, and the client is told behind what h2 has yet to write.
    fn reset_streams(&mut self, streams: &[u32], buffer: &mut ReadBuf<'_>) {
        let Some(http2) = &mut self.http2 else { return };
        http2.resets = http2::resets(streams);
        self.write_buffer.extend_from_slice(&http2.resets);
        http2.give_resets(buffer);
    }

    /// Writes frames of our own, which are in the write buffer, between two frames of h2.
    pub(super) fn poll_own_frames(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_between_frames = self.http2.as_ref().is_none_or(|http2| http2.frames.has_sent_whole_frames());
        if self.write_buffer.is_empty() || !is_between_frames {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_out(cx))?;
        ready!(self.poll_write_buffer(cx))?;
        self.inner()?.poll_flush(cx)
    }

    /// Ends a connection whose client floods it. The GOAWAY is written if that is possible at once.
    fn end_flood(&mut self, cx: &mut Context<'_>) {
        let Some(http2) = &mut self.http2 else { return };
        http2.is_flooded = true;
        http2.floods.inc();
        tracing::info!(target: "deskgate::request", "HTTP/2 connection closed: too many control frames");
        if self.write_buffer.is_empty() {
            self.write_buffer = http2.frames.go_away();
            let _ = self.poll_own_frames(cx);
        }
        self.discard_received(cx);
    }

    /// Discards what has arrived, up to a limit: the kernel resets a connection that is closed with unread bytes, and the
    /// client would lose the GOAWAY.
    fn discard_received(&mut self, cx: &mut Context<'_>) {
        let Some(inner) = &mut self.inner else { return };
        let mut bytes = [const { MaybeUninit::uninit() }; DISCARD_PIECE];
        for _ in 0..DISCARD_LIMIT / DISCARD_PIECE {
            let mut buffer = ReadBuf::uninit(&mut bytes);
            match Pin::new(&mut *inner).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                _ => return,
            }
        }
    }

    /// Takes what h2 writes. It leaves when h2 flushes, or when it is much: h2 writes the head of a frame and its payload apart, and
    /// each write would have a TLS record and a system call of its own.
    pub(super) fn poll_write_http2(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_flooded() {
            return Poll::Ready(Ok(bytes.len()));
        }
        if self.http2.as_ref().is_some_and(|http2| http2.out.len() + bytes.len() > MOST_OUT) {
            ready!(self.poll_out(cx))?;
        }
        let Some(http2) = &mut self.http2 else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        let bytes = &bytes[..bytes.len().min(MOST_OUT)];
        http2.out.extend(bytes);
        http2.frames.send(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    /// Flushes what h2 has written, once the tasks have run that are ready. Tokio runs the task of a connection right after that of
    /// a stream which has something to send; this way the responses of several streams leave together.
    pub(super) fn poll_flush_http2(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(http2) = &mut self.http2 else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        if !http2.out.is_empty() {
            if !std::mem::replace(&mut http2.has_yielded, true) {
                // A task that wakes itself is the last one in the queue.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            ready!(self.poll_out(cx))?;
        }
        self.poll_own_frames(cx)
    }

    /// Gives the transport what h2 has written.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.written > 0 {
            // A frame of our own is incomplete.
            ready!(self.poll_write_buffer(cx))?;
        }
        // Taken out, because writing needs all of the connection.
        let Some(http2) = &mut self.http2 else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        let (out, mut written) = (std::mem::take(&mut http2.out), http2.out_written);
        let result = loop {
            if written == out.len() {
                break Poll::Ready(Ok(()));
            }
            match self.poll_transport_write(cx, &out[written..]) {
                Poll::Ready(Ok(0)) => break Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => written += count,
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
        };
        if let Some(http2) = &mut self.http2 {
            match &result {
                Poll::Ready(_) => (http2.out_written, http2.has_yielded) = (0, false),
                Poll::Pending => (http2.out, http2.out_written) = (out, written),
            }
        }
        result
    }
}
