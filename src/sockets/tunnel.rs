//! The tunnel of one WebSocket, in a task of its own: relays both directions and closes them in order. Why a socket is
//! closed is left to its handle.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use pingora_core::protocols::Stream;
use tokio::io::AsyncWrite;

use super::expiry::Expiry;
use super::frame::{close_frame, masked_close_frame};
use super::handle::CloseHandle;
use super::registry::Registration;
use super::relay::{Direction, RelayEnd};
use super::{CLIENT_CLOSE_TIMEOUT, CloseReason};
use crate::metrics::Metrics;

/// How a tunnel ended; the label of `websockets_closed_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TunnelEnd {
    /// The client closed first.
    Client,
    /// The upstream closed first.
    Upstream,
    /// The gateway closed it.
    Gateway(CloseReason),
    /// A connection broke.
    Broken,
}

impl TunnelEnd {
    /// The spelling in metrics and logs.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            TunnelEnd::Client => "client",
            TunnelEnd::Upstream => "upstream",
            TunnelEnd::Gateway(reason) => reason.as_str(),
            TunnelEnd::Broken => "broken",
        }
    }
}

/// How a tunnel was closed, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TunnelClose {
    /// Why it ended.
    pub(crate) end: TunnelEnd,
    /// The code of the first close frame; `None` if a connection ended without one.
    pub(crate) code: Option<u16>,
}

impl TunnelClose {
    /// Who closed first; `None` if a connection broke.
    pub(crate) fn closed_by(self) -> Option<&'static str> {
        match self.end {
            TunnelEnd::Client => Some("client"),
            TunnelEnd::Upstream => Some("upstream"),
            TunnelEnd::Gateway(_) => Some("gateway"),
            TunnelEnd::Broken => None,
        }
    }
}

/// The client's end of a tunnel.
pub(crate) struct ClientEnd {
    pub(crate) stream: Stream,
    /// What was read behind the handshake.
    pub(crate) read_ahead: Bytes,
}

/// The upstream's end of a tunnel.
pub(crate) struct UpstreamEnd {
    pub(crate) stream: Stream,
    /// What was read together with the 101.
    pub(crate) read_ahead: Bytes,
}

/// Both ends of a running tunnel and what is in transit.
struct Tunnel {
    client: Stream,
    upstream: Stream,
    to_upstream: Direction,
    to_client: Direction,
    registration: Registration,
    expiry: Option<Expiry>,
    /// Whether the handle knows whom to wake.
    is_watched: bool,
    /// The side that sent a close frame first.
    closed_first: Option<TunnelEnd>,
}

/// Relays until one side closes or the handle closes the socket.
///
/// `grace` is the longest time for closing in order. `record` gets how the socket was closed.
///
/// Neither an `async fn` nor one whose result is awaited: either would hold all of this twice for as long as the socket is open.
pub(crate) fn run(
    client: ClientEnd,
    upstream: UpstreamEnd,
    registration: Registration,
    expiry: Option<Expiry>,
    grace: Duration,
    metrics: Arc<Metrics>,
    record: impl FnOnce(TunnelClose),
) -> impl Future<Output = ()> {
    let mut tunnel = Tunnel {
        client: client.stream,
        upstream: upstream.stream,
        to_upstream: Direction::starting_with(client.read_ahead),
        to_client: Direction::starting_with(upstream.read_ahead),
        registration,
        expiry,
        is_watched: false,
        closed_first: None,
    };
    async move {
        let end = poll_fn(|cx| tunnel.poll_relay(cx)).await;
        // The timeout cuts sockets that cannot be closed in order: an unfinished frame, or a client that does not read. Boxed, so
        // that an open socket does not hold the memory of its end.
        let _ = Box::pin(tokio::time::timeout(grace, tunnel.finish(end, &metrics))).await;
        let close = tunnel.describe_close(end);
        metrics.websockets_closed.with_label_values(&[close.end.as_str()]).inc();
        drop(tunnel);
        record(close);
    }
}

impl Tunnel {
    /// Relays, and notes which side closes first.
    fn poll_relay(&mut self, cx: &mut Context<'_>) -> Poll<TunnelEnd> {
        let polled = self.poll_ends(cx);
        if self.closed_first.is_none() {
            // Of two close frames that pass at the same time, either may be the first.
            let by_upstream = self.to_client.close_code().map(|_| TunnelEnd::Upstream);
            self.closed_first = self.to_upstream.close_code().map(|_| TunnelEnd::Client).or(by_upstream);
        }
        polled
    }

    /// Who closed first, and with which code: the peer that answers a close frame usually ends its connection first.
    fn describe_close(&self, end: TunnelEnd) -> TunnelClose {
        let code_of = |end: TunnelEnd| match end {
            TunnelEnd::Client => self.to_upstream.close_code(),
            TunnelEnd::Upstream => self.to_client.close_code(),
            TunnelEnd::Gateway(reason) => Some(reason.code_and_text().0),
            TunnelEnd::Broken => None,
        };
        let end = match end {
            TunnelEnd::Gateway(_) => end,
            TunnelEnd::Client | TunnelEnd::Upstream | TunnelEnd::Broken => self.closed_first.unwrap_or(end),
        };
        TunnelClose { end, code: code_of(end) }
    }

    fn poll_ends(&mut self, cx: &mut Context<'_>) -> Poll<TunnelEnd> {
        let handle = self.registration.handle();
        if let Some(timer) = &mut self.expiry
            && timer.poll(cx).is_ready()
        {
            self.expiry = None;
            handle.expire();
        }
        // A tunnel has one task, so that the handle need be told once whom to wake, and not for each message.
        if !std::mem::replace(&mut self.is_watched, true) {
            handle.watch(cx.waker());
        }
        if let Some(reason) = handle.close_reason() {
            return Poll::Ready(TunnelEnd::Gateway(reason));
        }
        match self.to_upstream.poll_relay(cx, &mut self.client, &mut self.upstream) {
            Poll::Ready(RelayEnd::Eof) => return Poll::Ready(TunnelEnd::Client),
            Poll::Ready(RelayEnd::Broken) => return Poll::Ready(TunnelEnd::Broken),
            Poll::Pending => {}
        }
        match self.to_client.poll_relay(cx, &mut self.upstream, &mut self.client) {
            Poll::Ready(RelayEnd::Eof) => Poll::Ready(TunnelEnd::Upstream),
            Poll::Ready(RelayEnd::Broken) => Poll::Ready(TunnelEnd::Broken),
            Poll::Pending => Poll::Pending,
        }
    }

    async fn finish(&mut self, end: TunnelEnd, metrics: &Metrics) {
        match end {
            TunnelEnd::Gateway(reason) => self.close(reason, metrics).await,
            TunnelEnd::Client => self.to_upstream.finish(&mut self.upstream).await,
            TunnelEnd::Upstream => self.to_client.finish(&mut self.client).await,
            TunnelEnd::Broken => {}
        }
    }

    /// Sends a close frame to each side, at a frame boundary, and then closes the connections.
    async fn close(&mut self, reason: CloseReason, metrics: &Metrics) {
        let (code, text) = reason.code_and_text();
        let handle = self.registration.handle().clone();
        if self.close_client(close_frame(code, text), &handle).await.is_ok()
            && let Some(since) = handle.closing_since()
        {
            metrics.websocket_close_seconds.observe(since.elapsed().as_secs_f64());
        }
        if let Some(batch) = handle.batch() {
            batch.all_sent().await;
        }
        if self.to_upstream.can_send_close() {
            let _ = self.to_upstream.send(masked_close_frame(code, text), &mut self.upstream).await;
        }
        let _ = poll_fn(|cx| Pin::new(&mut self.upstream).poll_shutdown(cx)).await;
        // Unread bytes would turn the close into a reset, which could destroy our close frame on its way.
        let client_close = self.to_upstream.discard_until_close(&mut self.client);
        let _ = tokio::time::timeout(CLIENT_CLOSE_TIMEOUT, client_close).await;
        let _ = poll_fn(|cx| Pin::new(&mut self.client).poll_shutdown(cx)).await;
    }

    /// Sends a close frame to the client, unless the upstream has sent one.
    async fn close_client(&mut self, frame: Vec<u8>, handle: &CloseHandle) -> io::Result<()> {
        let mut sending = pin!(async {
            self.to_client.finish_frame(&mut self.upstream, &mut self.client).await?;
            if !self.to_client.can_send_close() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.to_client.send(frame, &mut self.client).await
        });
        poll_fn(|cx| {
            let polled = sending.as_mut().poll(cx);
            // Once: the others do not wait for a client that does not read.
            if let Some(batch) = handle.batch() {
                batch.mark_sent();
            }
            polled
        })
        .await
    }
}
