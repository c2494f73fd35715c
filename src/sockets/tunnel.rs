//! The relay of one WebSocket, in a task of its own. It holds no buffer while nothing flows: reads go
//! through one scratch buffer per thread, and only the tail of a short write is kept.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use pingora_core::protocols::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::frame::{FrameTracker, close_frame, masked_close_frame};
use super::registry::Registration;
use super::{ANSWER_TO_CLOSE, Ending};
use crate::metrics::Metrics;

/// What one read takes. Large messages go through in pieces of this size.
const SCRATCH: usize = 16 * 1024;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into_boxed_slice());
}

/// How a socket ended; the label of `websockets_closed_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The client went first.
    ByClient,
    /// The upstream went first.
    ByUpstream,
    /// The gateway ended it.
    ByUs(Ending),
    /// A connection broke.
    Broken,
}

impl Ended {
    /// As metrics and logs spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Ended::ByClient => "client",
            Ended::ByUpstream => "upstream",
            Ended::ByUs(ending) => ending.as_str(),
            Ended::Broken => "broken",
        }
    }
}

/// Both ends of a socket, and what came along with either handshake.
pub struct Ends {
    /// To the client.
    pub client: Stream,
    /// To the upstream.
    pub upstream: Stream,
    /// Bytes that the client sent right behind its handshake.
    pub from_client: Bytes,
    /// Bytes that the upstream sent right behind its 101.
    pub from_upstream: Bytes,
}

/// Relays until one side ends or the handle is closing.
///
/// `lifetime` is how long the token is still good; `grace` how long an ending may take.
pub async fn run(
    ends: Ends,
    registration: Registration,
    lifetime: Option<Duration>,
    grace: Duration,
    metrics: Arc<Metrics>,
) -> Ended {
    let Ends { mut client, mut upstream, from_client, from_upstream } = ends;
    let mut up = Direction::starting_with(from_client);
    let mut down = Direction::starting_with(from_upstream);
    let mut expiry = lifetime.map(|lifetime| Box::pin(tokio::time::sleep(lifetime)));
    let relayed =
        poll_fn(|cx| relay(cx, &mut client, &mut upstream, &mut up, &mut down, &registration, &mut expiry)).await;
    let ended = match relayed {
        Relayed::SocketHandle(ending) => {
            let closing = close(&mut client, &mut upstream, &mut up, &mut down, ending, &registration, &metrics);
            // Mid-frame or with a client that does not read there may be no place for a close frame: cut.
            let _ = tokio::time::timeout(grace, closing).await;
            Ended::ByUs(ending)
        }
        Relayed::ClientGone => {
            let _ = tokio::time::timeout(grace, up.finish(&mut upstream)).await;
            Ended::ByClient
        }
        Relayed::UpstreamGone => {
            let _ = tokio::time::timeout(grace, down.finish(&mut client)).await;
            Ended::ByUpstream
        }
        Relayed::Broken => Ended::Broken,
    };
    metrics.websockets_closed.with_label_values(&[ended.as_str()]).inc();
    ended
}

/// Why relaying stopped.
enum Relayed {
    SocketHandle(Ending),
    ClientGone,
    UpstreamGone,
    Broken,
}

fn relay(
    cx: &mut Context<'_>,
    client: &mut Stream,
    upstream: &mut Stream,
    up: &mut Direction,
    down: &mut Direction,
    registration: &Registration,
    expiry: &mut Option<Pin<Box<Sleep>>>,
) -> Poll<Relayed> {
    let handle = registration.handle();
    if let Some(timer) = expiry
        && timer.as_mut().poll(cx).is_ready()
    {
        handle.expire();
    }
    if let Some(ending) = handle.poll(cx.waker()) {
        return Poll::Ready(Relayed::SocketHandle(ending));
    }
    match up.poll_move(cx, client, upstream) {
        Poll::Ready(Moved::End) => return Poll::Ready(Relayed::ClientGone),
        Poll::Ready(Moved::Broken) => return Poll::Ready(Relayed::Broken),
        Poll::Pending => {}
    }
    match down.poll_move(cx, upstream, client) {
        Poll::Ready(Moved::End) => Poll::Ready(Relayed::UpstreamGone),
        Poll::Ready(Moved::Broken) => Poll::Ready(Relayed::Broken),
        Poll::Pending => Poll::Pending,
    }
}

/// How one direction ended.
enum Moved {
    End,
    Broken,
}

/// One direction.
struct Direction {
    /// What has been read and not yet written; empty while nothing is stuck.
    tail: Bytes,
    tracker: FrameTracker,
    flush: bool,
}

impl Direction {
    fn starting_with(bytes: Bytes) -> Self {
        let mut tracker = FrameTracker::default();
        tracker.follow(&bytes);
        Self { tail: bytes, tracker, flush: true }
    }

    /// Moves bytes until one side is not ready. Nothing is read while a tail waits: a slow reader
    /// slows the writer down.
    fn poll_move(&mut self, cx: &mut Context<'_>, from: &mut Stream, to: &mut Stream) -> Poll<Moved> {
        loop {
            match ready!(self.poll_tail(cx, to)) {
                Ok(()) => {}
                Err(_) => return Poll::Ready(Moved::Broken),
            }
            match ready!(self.poll_piece(cx, from, to)) {
                Ok(0) => return Poll::Ready(Moved::End),
                Ok(_) => {}
                Err(_) => return Poll::Ready(Moved::Broken),
            }
        }
    }

    /// Writes what is stuck, and flushes once nothing is.
    fn poll_tail(&mut self, cx: &mut Context<'_>, to: &mut Stream) -> Poll<std::io::Result<()>> {
        while !self.tail.is_empty() {
            let written = ready!(Pin::new(&mut *to).poll_write(cx, &self.tail))?;
            if written == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            self.tail.advance(written);
            self.flush = true;
        }
        // Gives the memory of a large tail back.
        self.tail = Bytes::new();
        if self.flush {
            ready!(Pin::new(&mut *to).poll_flush(cx))?;
            self.flush = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads one piece through the scratch buffer and writes as much of it as goes.
    fn poll_piece(&mut self, cx: &mut Context<'_>, from: &mut Stream, to: &mut Stream) -> Poll<std::io::Result<usize>> {
        BUFFER.with_borrow_mut(|buffer| {
            let mut read = ReadBuf::new(buffer);
            ready!(Pin::new(&mut *from).poll_read(cx, &mut read))?;
            let piece = read.filled();
            self.tracker.follow(piece);
            let mut rest = piece;
            while !rest.is_empty() {
                match Pin::new(&mut *to).poll_write(cx, rest) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                    Poll::Ready(Ok(written)) => rest = &rest[written..],
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => break,
                }
            }
            self.tail = Bytes::copy_from_slice(rest);
            self.flush = true;
            Poll::Ready(Ok(piece.len()))
        })
    }

    /// Writes what is left and closes the writing side.
    async fn finish(&mut self, to: &mut Stream) {
        if poll_fn(|cx| self.poll_tail(cx, to)).await.is_ok() {
            let _ = poll_fn(|cx| Pin::new(&mut *to).poll_shutdown(cx)).await;
        }
    }

    /// Goes on to the next frame boundary and no further.
    async fn finish_frame(&mut self, from: &mut Stream, to: &mut Stream) -> std::io::Result<()> {
        poll_fn(|cx| self.poll_tail(cx, to)).await?;
        while !self.tracker.at_boundary() {
            let piece = poll_fn(|cx| {
                BUFFER.with_borrow_mut(|buffer| {
                    let mut read = ReadBuf::new(buffer);
                    ready!(Pin::new(&mut *from).poll_read(cx, &mut read))?;
                    let taken = self.tracker.follow_to_boundary(read.filled());
                    Poll::Ready(Ok::<_, std::io::Error>(Bytes::copy_from_slice(&read.filled()[..taken])))
                })
            })
            .await?;
            if piece.is_empty() {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            self.tail = piece;
            poll_fn(|cx| self.poll_tail(cx, to)).await?;
        }
        Ok(())
    }

    async fn send(&mut self, frame: Vec<u8>, to: &mut Stream) -> std::io::Result<()> {
        self.tail = Bytes::from(frame);
        poll_fn(|cx| self.poll_tail(cx, to)).await
    }
}

/// Ends a socket: a close frame to each side, at a frame boundary, then the end of the connections.
async fn close(
    client: &mut Stream,
    upstream: &mut Stream,
    up: &mut Direction,
    down: &mut Direction,
    ending: Ending,
    registration: &Registration,
    metrics: &Metrics,
) {
    let (code, reason) = ending.close();
    // What the upstream has already closed needs no second close frame.
    if down.finish_frame(upstream, client).await.is_ok() && !down.tracker.has_closed() {
        let sent = down.send(close_frame(code, reason), client).await;
        if sent.is_ok()
            && let Some(since) = registration.handle().since()
        {
            metrics.websocket_close_seconds.observe(since.elapsed().as_secs_f64());
        }
    }
    if up.tail.is_empty() && up.tracker.at_boundary() && !up.tracker.has_closed() {
        let _ = up.send(masked_close_frame(code, reason), upstream).await;
    }
    let _ = poll_fn(|cx| Pin::new(&mut *upstream).poll_shutdown(cx)).await;
    // The client's answer is read so that closing does not turn into a reset that eats our frame.
    let answered = async {
        loop {
            let read = poll_fn(|cx| {
                BUFFER.with_borrow_mut(|buffer| {
                    let mut read = ReadBuf::new(buffer);
                    ready!(Pin::new(&mut *client).poll_read(cx, &mut read))?;
                    up.tracker.follow(read.filled());
                    Poll::Ready(Ok::<_, std::io::Error>(read.filled().len()))
                })
            });
            match read.await {
                Ok(0) | Err(_) => break,
                Ok(_) if up.tracker.has_closed() && up.tracker.at_boundary() => break,
                Ok(_) => {}
            }
        }
    };
    let _ = tokio::time::timeout(ANSWER_TO_CLOSE, answered).await;
    let _ = poll_fn(|cx| Pin::new(&mut *client).poll_shutdown(cx)).await;
}
