//! A client's connection as the engine sees it: the transport itself, with a deadline for whole heads,
//! a limit on their size, and a way to take the transport back for a tunnel.
//!
//! The engine limits single reads only, answers unreadable heads by itself with an empty page, mends
//! request lines and reads chunks kindly. Here a drip-fed head is cut in time, whatever the engine says
//! before a request has reached us is replaced by our own refusal, the head is kept as it came for the
//! pipeline to judge, and chunks are followed strictly.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use memchr::memmem::Finder;
use pingora_core::protocols::{ALPN, Stream};
use pingora_proxy::Session as Exchange;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, Sleep};

use super::chunks::{BadChunk, Chunks};
use crate::error::{BadRequest, Error};
use crate::reply::Reply;

mod engine;

/// What one connection is doing. Written by the callbacks, read by the transport.
mod phase {
    /// Waiting for the first byte of a head, or in the middle of one.
    pub(super) const HEAD: u8 = 0;
    /// A request is being answered.
    pub(super) const EXCHANGE: u8 = 1;
    /// The answer is out; the next read asks for the next head.
    pub(super) const DONE: u8 = 2;
}

/// What the callbacks and the transport share.
#[derive(Default)]
struct Shared {
    phase: AtomicU8,
    /// The body is chunked: the transport follows it.
    chunked: AtomicBool,
    /// The body cannot be read in one way.
    broken: AtomicBool,
    taker: Mutex<Option<oneshot::Sender<DetachedStream>>>,
}

/// A transport that a tunnel has taken over, with its place among the allowed connections.
pub struct DetachedStream {
    /// The transport.
    pub stream: Stream,
    /// Held as long as the tunnel lives.
    pub place: Option<OwnedSemaphorePermit>,
}

/// How much and how long.
#[derive(Debug, Clone, Copy)]
pub struct HeadLimits {
    /// For a whole head, and for the first byte of the first one.
    pub deadline: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// For its size.
    pub bytes: usize,
    /// For its request target.
    pub target: usize,
    /// For its header lines.
    pub lines: usize,
}

/// How long the preface of HTTP/2 is.
const PREFACE: usize = 24;

/// Small answers go out in one write with their head.
const WRITE_BUFFER: usize = 4096;

/// A client's connection.
pub struct Connection {
    /// Gone once a tunnel has taken it.
    inner: Option<Stream>,
    shared: Arc<Shared>,
    limits: HeadLimits,
    /// The head as it came, and what came along with it.
    head: Vec<u8>,
    /// Where the head's empty line ends, once it has come.
    head_end: Option<usize>,
    /// Where in a chunked body the client is.
    chunks: Option<Chunks>,
    /// When the head must be there, or its first byte; nothing while it is not waited for.
    due: Option<Instant>,
    /// Goes off when it is due, or before: most requests come in time, and a timer that is left alone from
    /// one to the next costs nothing.
    timer: Option<Pin<Box<Sleep>>>,
    out: Vec<u8>,
    written: usize,
    refused: Option<Refused>,
    /// HTTP/2 has frames and limits of its own.
    transparent: bool,
    /// What is still to come of its preface, in bytes.
    preface_left: usize,
    /// Its place among the allowed connections.
    place: Option<OwnedSemaphorePermit>,
}

/// What has been said in the engine's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// Our refusal is on its way out.
    Saying,
    /// Nothing more is said or heard.
    Said,
}

impl Connection {
    /// Wraps an accepted connection.
    pub fn new(inner: Stream, limits: HeadLimits, place: OwnedSemaphorePermit) -> Self {
        let transparent = matches!(inner.selected_alpn_proto(), Some(ALPN::H2));
        Self {
            inner: Some(inner),
            shared: Arc::default(),
            limits,
            head: Vec::new(),
            head_end: None,
            chunks: None,
            due: Some(Instant::now() + limits.deadline),
            timer: None,
            out: Vec::new(),
            written: 0,
            refused: None,
            transparent,
            preface_left: if transparent { PREFACE } else { 0 },
            place: Some(place),
        }
    }

    fn inner(&mut self) -> io::Result<Pin<&mut Stream>> {
        self.inner.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Says our own refusal, once.
    fn refuse(&mut self, error: &Error) {
        if self.refused.is_none() {
            let arrival = super::unknown_arrival();
            tracing::info!(
                target: "deskgate::request",
                { request.id = arrival.request_id.as_str(), code = error.code().number() },
                "refused before a request could be read: {error}"
            );
            self.out = Reply::refusal(&arrival, error).to_bytes(&arrival);
            self.written = 0;
            self.refused = Some(Refused::Saying);
        }
    }

    /// Takes in another piece of the head.
    fn extend_head(&mut self, piece: &[u8]) {
        static EMPTY_LINE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\r\n\r\n"));
        // The empty line may have begun in the piece before.
        let from = self.head.len().saturating_sub(3);
        self.head.extend_from_slice(piece);
        if self.head_end.is_none() {
            self.head_end = EMPTY_LINE.find(&self.head[from..]).map(|place| from + place + 4);
        }
    }

    /// Says why the engine cannot read a head: too long, too many, or no HTTP.
    fn refuse_head(&mut self) {
        let lines = memchr::memchr_iter(b'\n', &self.head).count();
        let first_line = memchr::memchr(b'\n', &self.head).unwrap_or(self.head.len());
        // The method and the version are short: a first line that long has a target that long.
        let error = if first_line > self.limits.target + 64 {
            Error::TargetTooLong
        } else if lines > self.limits.lines || self.head.len() > self.limits.bytes {
            Error::HeadTooLarge
        } else {
            BadRequest::Head.into()
        };
        self.refuse(&error);
    }

    /// Follows a chunked body; the engine hears an error where it is broken.
    fn follow(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(chunks) = &mut self.chunks else { return Ok(()) };
        chunks.follow(bytes).map_err(|BadChunk| {
            self.shared.broken.store(true, Ordering::Release);
            io::ErrorKind::InvalidData.into()
        })
    }

    /// A read while a request is being answered: a piece of its body, if anything.
    fn poll_body(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.shared.chunked.swap(false, Ordering::AcqRel) {
            self.chunks = Some(Chunks::new());
            let body = self.head_end.unwrap_or(self.head.len());
            let came_along = self.head.split_off(body);
            self.follow(&came_along)?;
        }
        let before = buffer.filled().len();
        ready!(self.inner()?.poll_read(cx, buffer))?;
        if self.chunks.is_some() {
            self.follow(&buffer.filled()[before..])?;
        }
        Poll::Ready(Ok(()))
    }

    /// A read on HTTP/2. The engine waits for its preface for ever, so that has the deadline of a head; from
    /// then on the engine's own idle time counts.
    fn poll_frames(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if let Poll::Ready(result) = self.inner()?.poll_read(cx, buffer) {
            self.preface_left = self.preface_left.saturating_sub(buffer.filled().len() - before);
            return Poll::Ready(result);
        }
        if self.preface_left == 0 {
            self.timer = None;
            return Poll::Pending;
        }
        let due = *self.due.get_or_insert_with(|| Instant::now() + self.limits.deadline);
        // Nothing read is the end of the connection as the engine sees it.
        self.poll_due(cx, due).map(Ok)
    }

    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() {
            let Some(inner) = self.inner.as_mut() else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
            let count = ready!(Pin::new(inner).poll_write(cx, &self.out[self.written..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
        }
        self.out.clear();
        self.written = 0;
        if self.refused == Some(Refused::Saying) {
            self.refused = Some(Refused::Said);
        }
        Poll::Ready(Ok(()))
    }

    /// The rest of a refusal, then the end of the connection as the engine sees it.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_out(cx))?;
        ready!(self.inner()?.poll_flush(cx))?;
        Poll::Ready(Ok(()))
    }

    /// Ready once it is due.
    fn poll_due(&mut self, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if timer.deadline() > due {
            timer.as_mut().reset(due);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= due {
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
    }

    /// A read while a head is awaited.
    fn poll_head(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match self.inner()?.poll_read(cx, buffer) {
            Poll::Ready(result) => {
                if self.head.is_empty() {
                    self.due = None;
                }
                self.extend_head(&buffer.filled()[before..]);
                // Twice the limit: what is only a little too long gets its precise answer from the pipeline,
                // and a body may have come along.
                if self.head.len() > self.limits.bytes * 2 && self.head_end.is_none() {
                    buffer.set_filled(before);
                    self.refuse_head();
                    return self.poll_end(cx);
                }
                Poll::Ready(result)
            }
            Poll::Pending => {
                let due = *self.due.get_or_insert_with(|| Instant::now() + self.limits.deadline);
                ready!(self.poll_due(cx, due));
                if !self.head.is_empty() {
                    self.refuse(&Error::RequestTimeout);
                }
                self.refused.get_or_insert(Refused::Said);
                self.poll_end(cx)
            }
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = &mut *self;
        if me.transparent {
            return me.poll_frames(cx, buffer);
        }
        if me.refused.is_some() {
            return me.poll_end(cx);
        }
        match me.shared.phase.load(Ordering::Acquire) {
            phase::EXCHANGE => me.poll_body(cx, buffer),
            phase::DONE => {
                me.shared.phase.store(phase::HEAD, Ordering::Release);
                me.head.clear();
                me.head_end = None;
                // An unusually large head must not be paid for as long as the connection lives.
                me.head.shrink_to(WRITE_BUFFER);
                me.out.shrink_to(WRITE_BUFFER);
                me.chunks = None;
                me.due = Some(Instant::now() + me.limits.idle);
                me.poll_head(cx, buffer)
            }
            _ => me.poll_head(cx, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let me = &mut *self;
        if me.transparent {
            return me.inner()?.poll_write(cx, bytes);
        }
        if me.shared.phase.load(Ordering::Acquire) == phase::HEAD || me.refused.is_some() {
            // No request has reached us, so this is the engine's own word about a head it cannot read.
            me.refuse_head();
            return Poll::Ready(Ok(bytes.len()));
        }
        if me.out.len() + bytes.len() > WRITE_BUFFER {
            ready!(me.poll_out(cx))?;
            if bytes.len() >= WRITE_BUFFER {
                return me.inner()?.poll_write(cx, bytes);
            }
        }
        me.out.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_out(cx))?;
        self.inner()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_out(cx))?;
        if self.is_wanted() {
            return Poll::Ready(Ok(()));
        }
        self.inner()?.poll_shutdown(cx)
    }
}

impl Connection {
    fn is_wanted(&self) -> bool {
        self.shared.taker.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let taker = self.shared.taker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(taker), Some(stream)) = (taker, self.inner.take()) {
            // A tunnel that is gone by now needs no transport.
            let _ = taker.send(DetachedStream { stream, place: self.place.take() });
        }
    }
}

fn of(exchange: &Exchange) -> Option<&Connection> {
    exchange.stream().and_then(|stream| stream.as_any().downcast_ref::<Connection>())
}

/// A request has reached us. A chunked body is followed from its first byte on.
pub fn begin_exchange(exchange: &Exchange) {
    let Some(connection) = of(exchange) else { return };
    let chunked = exchange.req_header().headers.contains_key(http::header::TRANSFER_ENCODING);
    let broken = chunked && {
        let came_along = connection.head_end.map_or(&[][..], |end| &connection.head[end..]);
        Chunks::new().follow(came_along).is_err()
    };
    // Both anew for every request: the one before on this connection may have been chunked.
    connection.shared.chunked.store(chunked, Ordering::Release);
    connection.shared.broken.store(broken, Ordering::Release);
    connection.shared.phase.store(phase::EXCHANGE, Ordering::Release);
}

/// The head of the request as the client sent it; nothing on HTTP/2.
pub fn raw_head(exchange: &Exchange) -> Option<&[u8]> {
    let connection = of(exchange).filter(|connection| !connection.transparent)?;
    Some(&connection.head[..connection.head_end.unwrap_or(connection.head.len())])
}

/// Whether the body of the request cannot be read in one way.
pub fn is_body_broken(exchange: &Exchange) -> bool {
    of(exchange).is_some_and(|connection| connection.shared.broken.load(Ordering::Acquire))
}

/// Its answer is out.
pub fn end_exchange(exchange: &Exchange) {
    if let Some(connection) = of(exchange) {
        connection.shared.phase.store(phase::DONE, Ordering::Release);
    }
}

/// Asks for the transport itself: it comes when the engine lets go of the connection, which it does
/// after the callback that asked has returned.
pub fn take_over(exchange: &Exchange) -> Option<oneshot::Receiver<DetachedStream>> {
    let connection = of(exchange)?;
    let (give, take) = oneshot::channel();
    *connection.shared.taker.lock().unwrap_or_else(PoisonError::into_inner) = Some(give);
    Some(take)
}
