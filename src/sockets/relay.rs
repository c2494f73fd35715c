//! One direction of a tunnel. It holds no buffer while nothing flows: reads go through one scratch buffer per thread,
//! and only the rest of a partial write is kept. When to stop is left to the tunnel.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use pingora_core::protocols::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame::FrameTracker;

/// The size of the scratch buffer and so the most bytes of one read.
const SCRATCH: usize = 16 * 1024;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into_boxed_slice());
}

/// Reads once into the scratch buffer and passes the bytes to `consume`.
fn poll_read<T>(
    cx: &mut Context<'_>,
    from: &mut Stream,
    consume: impl FnOnce(&mut Context<'_>, &[u8]) -> io::Result<T>,
) -> Poll<io::Result<T>> {
    BUFFER.with_borrow_mut(|buffer| {
        let mut read = ReadBuf::new(buffer);
        ready!(Pin::new(&mut *from).poll_read(cx, &mut read))?;
        Poll::Ready(consume(cx, read.filled()))
    })
}

/// How the relay of one direction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RelayEnd {
    /// The sender closed its side.
    Eof,
    /// A read or a write failed.
    Broken,
}

/// One direction of a tunnel.
pub(super) struct Direction {
    /// Bytes that were read and not yet written; empty unless the receiver is slow.
    pending: Bytes,
    tracker: FrameTracker,
    needs_flush: bool,
}

impl Direction {
    /// A direction whose first bytes were read together with the handshake.
    pub(super) fn starting_with(bytes: Bytes) -> Self {
        let mut tracker = FrameTracker::default();
        tracker.track(&bytes);
        Self { pending: bytes, tracker, needs_flush: true }
    }

    /// Whether a close frame can be sent: all frames are complete, written, and none of them was a close frame.
    pub(super) fn can_send_close(&self) -> bool {
        self.pending.is_empty() && self.tracker.at_boundary() && !self.tracker.has_closed()
    }

    /// The code of the sender's close frame, if that has passed.
    pub(super) fn close_code(&self) -> Option<u16> {
        self.tracker.close_code()
    }

    /// Relays bytes until one side is not ready. It reads nothing while bytes are pending, so that a slow receiver slows
    /// the sender down.
    pub(super) fn poll_relay(&mut self, cx: &mut Context<'_>, from: &mut Stream, to: &mut Stream) -> Poll<RelayEnd> {
        loop {
            if ready!(self.poll_pending(cx, to)).is_err() {
                return Poll::Ready(RelayEnd::Broken);
            }
            match ready!(self.poll_read_write(cx, from, to)) {
                Ok(0) => return Poll::Ready(RelayEnd::Eof),
                Ok(_) => {}
                Err(_) => return Poll::Ready(RelayEnd::Broken),
            }
        }
    }

    /// Writes the pending bytes, then flushes.
    fn poll_pending(&mut self, cx: &mut Context<'_>, to: &mut Stream) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            let written = ready!(Pin::new(&mut *to).poll_write(cx, &self.pending))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.pending.advance(written);
            self.needs_flush = true;
        }
        // Frees the memory of the bytes that were pending.
        self.pending = Bytes::new();
        if self.needs_flush {
            ready!(Pin::new(&mut *to).poll_flush(cx))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once and writes as much as the receiver accepts; the rest becomes pending.
    fn poll_read_write(&mut self, cx: &mut Context<'_>, from: &mut Stream, to: &mut Stream) -> Poll<io::Result<usize>> {
        poll_read(cx, from, |cx, bytes| {
            self.tracker.track(bytes);
            let mut rest = bytes;
            while !rest.is_empty() {
                match Pin::new(&mut *to).poll_write(cx, rest) {
                    Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                    Poll::Ready(Ok(written)) => rest = &rest[written..],
                    Poll::Ready(Err(error)) => return Err(error),
                    Poll::Pending => break,
                }
            }
            self.pending = Bytes::copy_from_slice(rest);
            self.needs_flush = true;
            Ok(bytes.len())
        })
    }

    /// Writes the pending bytes and closes the receiver's side.
    pub(super) async fn finish(&mut self, to: &mut Stream) {
        if poll_fn(|cx| self.poll_pending(cx, to)).await.is_ok() {
            let _ = poll_fn(|cx| Pin::new(&mut *to).poll_shutdown(cx)).await;
        }
    }

    /// Relays up to the next frame boundary and no further.
    pub(super) async fn finish_frame(&mut self, from: &mut Stream, to: &mut Stream) -> io::Result<()> {
        poll_fn(|cx| self.poll_pending(cx, to)).await?;
        while !self.tracker.at_boundary() {
            let tracker = &mut self.tracker;
            let bytes = poll_fn(|cx| {
                poll_read(cx, from, |_, bytes| {
                    let consumed = tracker.track_to_boundary(bytes);
                    Ok(Bytes::copy_from_slice(&bytes[..consumed]))
                })
            })
            .await?;
            if bytes.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.pending = bytes;
            poll_fn(|cx| self.poll_pending(cx, to)).await?;
        }
        Ok(())
    }

    /// Sends a frame of the gateway's own.
    pub(super) async fn send(&mut self, frame: Vec<u8>, to: &mut Stream) -> io::Result<()> {
        self.pending = Bytes::from(frame);
        poll_fn(|cx| self.poll_pending(cx, to)).await
    }

    /// Reads and drops bytes up to the sender's close frame or the end of its stream.
    pub(super) async fn discard_until_close(&mut self, from: &mut Stream) {
        loop {
            let tracker = &mut self.tracker;
            let read = poll_fn(|cx| {
                poll_read(cx, from, |_, bytes| {
                    tracker.track(bytes);
                    Ok(bytes.len())
                })
            });
            match read.await {
                Ok(0) | Err(_) => return,
                Ok(_) if self.tracker.has_closed() && self.tracker.at_boundary() => return,
                Ok(_) => {}
            }
        }
    }
}
