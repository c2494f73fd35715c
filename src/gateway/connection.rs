//! A client's connection: wraps the accepted transport that both lanes read from and write to.
//!
//! Pingora limits single reads only, answers heads that it cannot parse with an empty 400, repairs request lines and
//! accepts malformed chunks. This wrapper puts a deadline and a size limit on whole heads, replaces Pingora's early
//! responses by the gateway's refusals, keeps the raw head for the pipeline, validates chunked framing, keeps pipelined
//! requests until the one before is answered and hands the transport over to WebSocket tunnels. Decisions about complete
//! heads are left to the pipeline.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use pingora_core::protocols::{ALPN, SocketDigest, Stream};
use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;

use super::chunks::{ChunkValidator, InvalidChunk};
use super::connection_limits::ConnectionSlot;
use super::deadline::Deadline;
use super::drain_signal::DrainSignal;
use super::early_refusal::{self, EarlyRefusals, SATURATED};
use super::linger;
use crate::error::{BadRequest, Error};
use crate::pipeline::head::Transport;

mod exchange;

mod fast;

mod head;

mod http2;

mod http2_transport;

mod pingora_traits;

mod rate;

pub(super) use exchange::{
    DetachedStream, EarlierDecision, begin_exchange, begin_stream, body_error, detach, end_exchange, raw_head,
    take_decision, transport, wants_close,
};
use exchange::{ExchangeState, announced, body_fault, phase};
pub(super) use fast::AnnouncedBody;
use head::HeadBuffer;
pub(crate) use head::HeadLimits;
use http2_transport::Http2Connection;
pub(crate) use rate::BodyLimits;
use rate::RateGuard;

/// The size of the write buffer: a small response leaves in one write together with its header.
const WRITE_BUFFER: usize = 4096;

/// The most bytes of one read of what follows a request. Usually there is nothing, or one small request.
const LONGEST_READ: usize = 2048;

/// How long a connection without a request stays open when the gateway drains. A client that sends one request after the
/// other has its next one on the way, and closing at once would cross it; its response then says `Connection: close`.
const IDLE_WHILE_DRAINING: Duration = Duration::from_millis(500);

/// What every connection is held to.
#[derive(Debug, Clone)]
pub(crate) struct ClientLimits {
    pub(crate) head: HeadLimits,
    /// None without limits on bodies.
    pub(crate) body: Option<Arc<BodyLimits>>,
    /// Counts HTTP/2 connections that were closed for a flood of frames.
    pub(crate) frame_floods: IntCounter,
    /// Counts requests that are refused before they are examined.
    pub(crate) refusals: EarlyRefusals,
}

/// A client's connection.
pub(super) struct Connection {
    /// None only while it is dropped.
    inner: Option<Stream>,
    state: ExchangeState,
    limits: HeadLimits,
    head: HeadBuffer,
    body: RequestBody,
    /// The deadline of the present wait: for a head, the next request, or, in the fast lane, for the client or the upstream.
    deadline: Deadline,
    /// When the last exchange of the fast lane ended. None after one of Pingora's lane, then the clock is read.
    idle_since: Option<Instant>,
    upload: RateGuard,
    download: RateGuard,
    write_buffer: Vec<u8>,
    /// How much of the write buffer has been written.
    written: usize,
    refusal: Option<EarlyRefusal>,
    /// The client took too long to send a head or a body.
    is_too_slow: bool,
    /// None on HTTP/1.1. HTTP/2 has frames and limits of its own, so its bytes pass unchanged.
    http2: Option<Box<Http2Connection>>,
    /// Counts against the limit on open connections.
    slot: Option<ConnectionSlot>,
    /// Its client. A load balancer may have named another one than the socket does.
    peer: SocketAddr,
    /// What Pingora wants to know of the socket, made when it first asks.
    digest: OnceLock<Arc<SocketDigest>>,
    /// How its requests arrive.
    transport: Transport,
    drain: Arc<DrainSignal>,
    refusals: EarlyRefusals,
}

/// What is left of the body of the current request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestBody {
    Length(u64),
    Chunked(ChunkValidator),
}

impl RequestBody {
    const COMPLETE: Self = Self::Length(0);

    fn is_complete(&self) -> bool {
        match self {
            RequestBody::Length(left) => *left == 0,
            RequestBody::Chunked(chunks) => chunks.is_done(),
        }
    }

    /// Takes bytes that the client sent. Returns how many of them belong to the body.
    fn take(&mut self, bytes: &[u8]) -> Result<usize, InvalidChunk> {
        match self {
            RequestBody::Length(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= count as u64;
                Ok(count)
            }
            RequestBody::Chunked(chunks) => chunks.validate(bytes),
        }
    }
}

/// How reading a head ended.
enum HeadRead {
    Complete,
    /// There will be no request.
    Ended,
}

/// A refusal that the connection writes by itself, before a request reaches a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EarlyRefusal {
    /// The refusal is in the write buffer.
    Writing,
    /// The refusal has been written; the connection ends.
    Written,
}

impl Connection {
    pub(super) fn new(
        inner: Stream,
        protocol: ALPN,
        peer: SocketAddr,
        transport: Transport,
        limits: &ClientLimits,
        slot: ConnectionSlot,
        drain: Arc<DrainSignal>,
    ) -> Self {
        Self {
            inner: Some(inner),
            state: ExchangeState::default(),
            limits: limits.head,
            head: HeadBuffer::default(),
            body: RequestBody::COMPLETE,
            deadline: Deadline::after(limits.head.deadline),
            idle_since: None,
            upload: RateGuard::of_uploads(limits.body.clone()),
            download: RateGuard::of_downloads(limits.body.clone()),
            write_buffer: Vec::new(),
            written: 0,
            refusal: None,
            is_too_slow: false,
            http2: (protocol == ALPN::H2).then(|| Box::new(Http2Connection::new(limits))),
            slot: Some(slot),
            peer,
            digest: OnceLock::new(),
            transport,
            drain,
            refusals: limits.refusals.clone(),
        }
    }

    fn inner(&mut self) -> io::Result<Pin<&mut Stream>> {
        self.inner.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Puts a refusal into the write buffer, once.
    fn refuse(&mut self, error: &Error) {
        if self.refusal.is_none() {
            self.write_buffer = early_refusal::encode(self.peer(), self.head.head(), error, &self.refusals);
            self.written = 0;
            self.refusal = Some(EarlyRefusal::Writing);
        }
    }

    /// Refuses the request whose head has been read and closes the connection: the gateway is saturated.
    pub(super) async fn refuse_overload(&mut self) {
        self.refuse(&SATURATED);
        let _ = poll_fn(|cx| Pin::new(&mut *self).poll_shutdown(cx)).await;
    }

    /// Prepares for the next request on this connection.
    fn reset(&mut self) {
        self.head.begin_next();
        // A connection that waits holds no buffers: allocating them again costs less than the cache misses of many.
        self.write_buffer = Vec::new();
        self.download.restart();
        let idle_since = self.idle_since.take();
        if self.head.is_empty() {
            self.deadline.set_at(idle_since.unwrap_or_else(Instant::now) + self.limits.idle);
        } else {
            self.deadline.clear();
        }
    }

    /// The path of the request whose head has been read, as far as it can be recognized without parsing it.
    pub(super) fn path(&self) -> &[u8] {
        let head = self.head.head();
        let target = memchr::memchr(b' ', head).map_or(head.len(), |space| space + 1);
        &head[target..]
    }

    pub(super) fn is_http2(&self) -> bool {
        self.http2.is_some()
    }

    /// Reads the next head. Returns false if the connection ends instead: the client has closed it, was too slow, or was
    /// refused.
    pub(super) async fn read_head(&mut self) -> bool {
        match self.state.phase.swap(phase::HEAD, Ordering::AcqRel) {
            phase::HEAD => {}
            phase::DONE => self.reset(),
            // The exchange has not ended.
            _ => return false,
        }
        let read = poll_fn(|cx| self.poll_read_head(cx)).await;
        if self.refusal.is_some() {
            let _ = poll_fn(|cx| Pin::new(&mut *self).poll_shutdown(cx)).await;
        }
        matches!(read, Ok(HeadRead::Complete))
    }

    fn poll_read_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<HeadRead>> {
        while !self.head.is_complete() {
            if self.refusal.is_some() {
                ready!(self.poll_write_buffer(cx))?;
                return Poll::Ready(Ok(HeadRead::Ended));
            }
            let is_first = self.head.is_empty();
            let inner = self.inner.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            match self.head.poll_read(inner, cx)? {
                Poll::Ready(0) => return Poll::Ready(Ok(HeadRead::Ended)),
                Poll::Ready(_) => {
                    if is_first {
                        self.deadline.clear();
                    }
                    if self.head.exceeds(&self.limits) {
                        self.refuse(&self.head.error(&self.limits));
                    }
                }
                Poll::Pending => {
                    ready!(self.poll_head_deadline(cx));
                    if self.head.is_empty() {
                        return Poll::Ready(Ok(HeadRead::Ended));
                    }
                    self.is_too_slow = true;
                    self.refuse(&Error::RequestTimeout);
                }
            }
        }
        Poll::Ready(Ok(HeadRead::Complete))
    }

    /// Gives Pingora the head, which has been read. If it reads on, the head was nothing but empty lines; one may precede the
    /// request line, and is not given.
    fn poll_head(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.head.is_given() {
            self.refuse(&BadRequest::Head.into());
            return self.poll_refusal(cx);
        }
        self.head.give_head(buffer);
        Poll::Ready(Ok(()))
    }

    /// Reads while a request is being answered: its body, and then the next request.
    fn poll_exchange(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.state.announced_body.swap(announced::SEEN, Ordering::AcqRel) {
            announced::SEEN => {}
            announced => {
                self.upload.restart();
                if self.state.expects_continue.load(Ordering::Acquire) {
                    self.upload.hold();
                }
                self.body = match announced {
                    announced::CHUNKED => RequestBody::Chunked(ChunkValidator::new()),
                    length => RequestBody::Length(length),
                };
            }
        }
        if self.body.is_complete() { self.poll_read_ahead(cx) } else { self.poll_body(cx, buffer) }
    }

    /// Reads the body: what was read together with the head, and then from the transport.
    fn poll_body(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read_ahead = self.head.read_ahead();
        if !read_ahead.is_empty() {
            let fitting = &read_ahead[..read_ahead.len().min(buffer.remaining())];
            let count = take_body(&mut self.body, &self.state, fitting)?;
            buffer.put_slice(&fitting[..count]);
            self.head.mark_given(count);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = self.inner()?.poll_read(cx, buffer).map_ok(|()| buffer.filled().len() - before);
        let is_pending = read.is_pending();
        if let Err(error) = ready!(self.upload.poll_progress(cx, read)) {
            if is_pending {
                self.is_too_slow = true;
                self.state.body_fault.store(body_fault::TOO_SLOW, Ordering::Release);
            }
            return Poll::Ready(Err(error));
        }
        let count = take_body(&mut self.body, &self.state, &buffer.filled()[before..])?;
        self.head.keep(&buffer.filled()[before + count..]);
        buffer.set_filled(before + count);
        Poll::Ready(Ok(()))
    }

    /// Reads the next request while this one is answered, up to the size of a head: only a read shows that the client has
    /// disconnected, which an empty read tells the lane. A client that sends more is read again after the answer: until then
    /// this is pending without a waker, and the exchange, which has others, does not notice that the client disconnects.
    fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.head.read_ahead().len() < self.limits.bytes {
            let mut bytes = [const { MaybeUninit::uninit() }; LONGEST_READ];
            let mut buffer = ReadBuf::uninit(&mut bytes);
            ready!(self.inner()?.poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.head.keep(buffer.filled());
        }
        Poll::Pending
    }

    /// Ready once the client has taken too long. Only a connection on which no byte of a request has arrived has less
    /// time during a drain.
    fn poll_head_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.head.is_empty() && self.drain.has_begun() {
            self.deadline.bring_forward(IDLE_WHILE_DRAINING);
        }
        self.deadline.poll(cx, self.limits.deadline)
    }

    /// Writes to the transport. Fails once the client has taken too little for too long.
    fn poll_transport_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // The body waits while the response does.
        self.upload.pause();
        let Some(inner) = &mut self.inner else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        let wrote = Pin::new(inner).poll_write(cx, bytes);
        self.download.poll_progress(cx, wrote)
    }

    fn poll_write_buffer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.write_buffer.len() {
            let Some(inner) = self.inner.as_mut() else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
            let wrote = Pin::new(inner).poll_write(cx, &self.write_buffer[self.written..]);
            let count = ready!(self.download.poll_progress(cx, wrote))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
        }
        self.write_buffer.clear();
        self.written = 0;
        if self.refusal == Some(EarlyRefusal::Writing) {
            self.refusal = Some(EarlyRefusal::Written);
        }
        Poll::Ready(Ok(()))
    }

    /// Whether the client may be sending although everything has been answered: the rest of a body that was refused, a head that
    /// was, or another request. Neither a client that was too slow nor one whose exchange was cut (`cut`) gets more time.
    fn has_unread_input(&self) -> bool {
        let is_answered = self.state.phase.load(Ordering::Acquire) == phase::DONE || self.refusal.is_some();
        let has_body = match self.state.announced_body.load(Ordering::Acquire) {
            announced::SEEN => !self.body.is_complete(),
            length => length > 0,
        };
        let has_input = has_body || self.refusal.is_some() || !self.head.read_ahead().is_empty();
        self.http2.is_none() && is_answered && has_input && !self.is_too_slow
    }

    /// Writes the rest of a refusal and then ends the connection for Pingora by an empty read.
    fn poll_refusal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_buffer(cx))?;
        ready!(self.inner()?.poll_flush(cx))?;
        Poll::Ready(Ok(()))
    }
}

/// Takes bytes of a body; the lane gets a read error where the chunked framing is invalid.
fn take_body(body: &mut RequestBody, state: &ExchangeState, bytes: &[u8]) -> io::Result<usize> {
    body.take(bytes).map_err(|InvalidChunk| {
        state.body_fault.store(body_fault::FRAMING, Ordering::Release);
        io::ErrorKind::InvalidData.into()
    })
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = &mut *self;
        if me.http2.is_some() {
            return me.poll_http2(cx, buffer);
        }
        if me.refusal.is_some() {
            return me.poll_refusal(cx);
        }
        match me.state.phase.load(Ordering::Acquire) {
            phase::EXCHANGE => me.poll_exchange(cx, buffer),
            _ => me.poll_head(cx, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let me = &mut *self;
        if me.http2.is_some() {
            return me.poll_write_http2(cx, bytes);
        }
        if me.state.phase.load(Ordering::Acquire) == phase::HEAD || me.refusal.is_some() {
            // No request has reached the lane, so this is Pingora's response to a head that it cannot parse.
            me.refuse(&me.head.error(&me.limits));
            return Poll::Ready(Ok(bytes.len()));
        }
        // A 100, for which the body may have waited, or the response.
        me.upload.release();
        if me.write_buffer.len() + bytes.len() > WRITE_BUFFER {
            ready!(me.poll_write_buffer(cx))?;
            if bytes.len() >= WRITE_BUFFER {
                return me.poll_transport_write(cx, bytes);
            }
        }
        me.write_buffer.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_flooded() {
            return Poll::Ready(Ok(()));
        }
        if self.http2.is_some() {
            ready!(self.poll_flush_http2(cx))?;
        } else {
            ready!(self.poll_write_buffer(cx))?;
        }
        let flushed = self.inner()?.poll_flush(cx).map_ok(|()| 0);
        self.download.poll_progress(cx, flushed).map_ok(drop)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        if self.state.is_detaching() || self.is_flooded() {
            return Poll::Ready(Ok(()));
        }
        let shut_down = self.inner()?.poll_shutdown(cx).map_ok(|()| 0);
        self.download.poll_progress(cx, shut_down).map_ok(drop)
    }
}

impl Drop for Connection {
    /// Hands the transport to the tunnel that waits for it, or closes it once its client has sent the rest.
    fn drop(&mut self) {
        let has_unread_input = self.has_unread_input();
        let Some(stream) = self.inner.take() else { return };
        let slot = self.slot.take();
        if let Some(tunnel) = self.state.take_tunnel() {
            // Fails only if the tunnel's task is gone; then the transport closes here.
            let read_ahead = self.head.take_read_ahead().to_vec();
            let _ = tunnel.send(DetachedStream { stream, slot, read_ahead });
        } else if has_unread_input && let Ok(runtime) = Handle::try_current() {
            let drain = self.drain.subscribe();
            runtime.spawn(async move {
                // Still an open connection.
                let _open = (slot, drain);
                linger::close(stream).await;
            });
        }
    }
}

#[cfg(test)]
mod tests;
