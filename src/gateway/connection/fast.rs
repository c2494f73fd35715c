//! What the fast lane needs of a connection: the head of a request, and the client's disconnection. It reads and writes through the
//! connection as Pingora does, with the same limits.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::super::buffer::Buffer;
use super::super::chunks::ChunkValidator;
use super::exchange::{announced, phase};
use super::{Connection, DetachedStream, EarlierDecision};
use crate::error::Error;
use crate::pipeline::head::Transport;

/// The body that a head announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum AnnouncedBody {
    /// So many bytes; 0 also without `Content-Length`.
    Length(u64),
    Chunked,
}

impl AnnouncedBody {
    pub(in super::super) const NONE: Self = Self::Length(0);
}

impl Connection {
    /// Removes and returns the head that has been read.
    pub(in super::super) fn take_head(&mut self) -> Buffer {
        // A decision about an earlier request must not apply to this one.
        self.state.take_decision();
        self.head.take_head()
    }

    /// Puts a head back, for Pingora to read.
    pub(in super::super) fn return_head(&mut self, head: Buffer) {
        self.head.return_head(head);
    }

    /// Leaves the decision about a request to Pingora's lane, so that it is not made twice.
    pub(in super::super) fn leave_decision(&mut self, decision: EarlierDecision) {
        self.state.leave_decision(decision);
    }

    /// Marks that a request is being answered. Its chunked body is validated from the first byte.
    pub(in super::super) fn begin_fast(&mut self, body: AnnouncedBody) {
        let (announced, is_invalid) = match body {
            AnnouncedBody::Length(length) => (length, false),
            AnnouncedBody::Chunked => {
                (announced::CHUNKED, ChunkValidator::new().validate(self.head.read_ahead()).is_err())
            }
        };
        self.state.begin(announced, false, is_invalid);
    }

    /// Marks the exchange as ended `now`, completely or not.
    pub(in super::super) fn end_exchange(&mut self, now: Instant) {
        self.idle_since = Some(now);
        self.state.phase.store(phase::DONE, Ordering::Release);
    }

    /// Why the request body cannot be read, if it is the client's fault.
    pub(in super::super) fn body_error(&self) -> Option<Error> {
        self.state.body_error()
    }

    /// Ready once the exchange has waited for longer than `limit`. `begins` is when the wait began, if it begins with this call. No
    /// timer is armed for it as long as the one of an earlier wait is due before.
    pub(in super::super) fn poll_wait(
        &mut self,
        begins: Option<Instant>,
        limit: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if let Some(begins) = begins {
            self.deadline.set_at(begins + limit);
        }
        self.deadline.poll(cx, limit)
    }

    /// Writes bytes of a response, without collecting them as for Pingora, which writes a head and its body apart.
    pub(in super::super) fn poll_send(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.upload.release();
        ready!(self.poll_write_buffer(cx))?;
        self.poll_transport_write(cx, bytes)
    }

    /// Requests the transport for a tunnel. It arrives when the connection is dropped.
    pub(in super::super) fn detach(&mut self) -> oneshot::Receiver<DetachedStream> {
        self.state.detach()
    }

    /// The address of the connection's other end.
    pub(in super::super) fn peer(&self) -> IpAddr {
        self.peer.ip()
    }

    /// How its requests arrive.
    pub(in super::super) fn transport(&self) -> Transport {
        self.transport
    }

    /// Ready once the client has closed its connection. What it sends meanwhile is kept: the next request, or the rest of a body that the
    /// upstream no longer takes.
    pub(in super::super) fn poll_disconnected(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_read_ahead(cx).map(|_| ())
    }
}
