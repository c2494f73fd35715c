//! What the lanes tell a connection and ask it about the current exchange. Reading and writing are left to
//! the [`Connection`] itself, which shares an [`ExchangeState`] with the lanes.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession as Exchange;
use tokio::sync::oneshot;

use super::super::chunks::ChunkValidator;
use super::super::connection_limits::{ConnectionSlot, CountedClient, CountedStream, StreamRefusal};
use super::Connection;
use crate::error::{BadRequest, Error, Part};
use crate::pipeline::Decision;
use crate::pipeline::head::{Transport, lists};

/// The refusal when a client has as many requests on HTTP/2 connections as it may have connections. One may end at any
/// moment, so the wait is short.
const TOO_MANY_STREAMS: Error = Error::TooManyStreams { retry_after: Duration::from_secs(1) };

/// The refusal when no descriptor may be left for a connection to an upstream.
const NO_DESCRIPTOR: Error = Error::Saturated { retry_after: Duration::from_secs(1) };

/// The phases of a connection. The lanes begin and end an exchange; the connection itself begins to read the next head.
pub(super) mod phase {
    /// A head is expected or incomplete.
    pub(in super::super) const HEAD: u8 = 0;
    /// A request is being answered.
    pub(in super::super) const EXCHANGE: u8 = 1;
    /// The exchange has ended, completely or not; the next read begins the next head.
    pub(in super::super) const DONE: u8 = 2;
}

/// Marks in place of the length of a body.
pub(super) mod announced {
    /// The connection has seen what was announced.
    pub(in super::super) const SEEN: u64 = u64::MAX;
    pub(in super::super) const CHUNKED: u64 = u64::MAX - 1;
    /// A length that cannot be read, which the pipeline refuses.
    pub(in super::super) const UNKNOWN: u64 = u64::MAX - 2;
}

/// Why the body of a request cannot be read.
pub(super) mod body_fault {
    pub(in super::super) const NONE: u8 = 0;
    /// Its chunked framing is invalid.
    pub(in super::super) const FRAMING: u8 = 1;
    /// It stayed below the minimum rate.
    pub(in super::super) const TOO_SLOW: u8 = 2;
}

/// The state that the lanes and the connection share. Atomic, because Pingora's sessions lend a connection by shared reference only.
#[derive(Default)]
pub(super) struct ExchangeState {
    pub(super) phase: AtomicU8,
    /// The length of a body of which nothing has been read yet, or one of the marks of [`announced`].
    pub(super) announced_body: AtomicU64,
    /// Whether the client waits for a 100 before it sends that body.
    pub(super) expects_continue: AtomicBool,
    /// What is wrong with the current body: one of [`body_fault`].
    pub(super) body_fault: AtomicU8,
    /// The tunnel that waits for the transport.
    tunnel: Mutex<Option<oneshot::Sender<DetachedStream>>>,
    /// What the fast lane has found out about the request, if it has left it.
    decision: Mutex<Option<EarlierDecision>>,
    /// Whether there is one, so that most requests need not take the lock.
    has_decision: AtomicBool,
}

impl ExchangeState {
    /// Marks that a request is being answered. All is set for every request: the previous one on this connection may have had
    /// a body.
    pub(super) fn begin(&self, announced: u64, expects_continue: bool, is_invalid: bool) {
        self.expects_continue.store(expects_continue, Ordering::Release);
        self.announced_body.store(announced, Ordering::Release);
        let fault = if is_invalid { body_fault::FRAMING } else { body_fault::NONE };
        self.body_fault.store(fault, Ordering::Release);
        self.phase.store(phase::EXCHANGE, Ordering::Release);
    }

    /// Why the request body cannot be read, if it is the client's fault.
    pub(super) fn body_error(&self) -> Option<Error> {
        match self.body_fault.load(Ordering::Acquire) {
            body_fault::FRAMING => Some(BadRequest::Framing.into()),
            body_fault::TOO_SLOW => Some(Error::RequestTimeout),
            _ => None,
        }
    }

    pub(super) fn is_detaching(&self) -> bool {
        self.tunnel.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    pub(super) fn leave_decision(&self, decision: EarlierDecision) {
        *self.decision.lock().unwrap_or_else(PoisonError::into_inner) = Some(decision);
        self.has_decision.store(true, Ordering::Release);
    }

    pub(super) fn take_decision(&self) -> Option<EarlierDecision> {
        if !self.has_decision.load(Ordering::Acquire) {
            return None;
        }
        self.has_decision.store(false, Ordering::Release);
        self.decision.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Requests the transport for a tunnel.
    pub(super) fn detach(&self) -> oneshot::Receiver<DetachedStream> {
        let (sender, receiver) = oneshot::channel();
        *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }

    pub(super) fn take_tunnel(&self) -> Option<oneshot::Sender<DetachedStream>> {
        self.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The decision about a request that the fast lane leaves to Pingora's lane.
pub(in super::super) struct EarlierDecision {
    pub(in super::super) decision: Box<Decision>,
    /// When the request began.
    pub(in super::super) began: Instant,
}

/// A client's transport, detached from Pingora for a tunnel.
pub(in super::super) struct DetachedStream {
    pub(in super::super) stream: Stream,
    /// The connection slot, to be held as long as the tunnel runs.
    pub(in super::super) slot: Option<ConnectionSlot>,
    /// What the client has sent behind the handshake.
    pub(in super::super) read_ahead: Vec<u8>,
}

fn connection(exchange: &Exchange) -> Option<&Connection> {
    exchange.stream().and_then(|stream| stream.as_any().downcast_ref::<Connection>())
}

/// Marks that a request has reached Pingora's lane. Its chunked body is validated from the first byte.
pub(in super::super) fn begin_exchange(exchange: &Exchange) {
    let Some(connection) = connection(exchange) else { return };
    let headers = &exchange.req_header().headers;
    let is_chunked = headers.contains_key(TRANSFER_ENCODING);
    let is_invalid = is_chunked && ChunkValidator::new().validate(connection.head.body()).is_err();
    let announced = match headers.get(CONTENT_LENGTH) {
        _ if is_chunked => announced::CHUNKED,
        Some(length) => {
            let length = length.to_str().ok().and_then(|length| length.parse().ok());
            length.filter(|length| *length < announced::UNKNOWN).unwrap_or(announced::UNKNOWN)
        }
        None => 0,
    };
    connection.state.begin(announced, headers.contains_key(EXPECT), is_invalid);
}

/// Whether the client asks to close the connection after the response. Pingora reads the first `Connection` line only.
pub(in super::super) fn wants_close(exchange: &Exchange) -> bool {
    let lines = exchange.req_header().headers.get_all(CONNECTION);
    lines.iter().any(|value| lists(value.as_bytes(), "close"))
}

/// The decision that the fast lane has made about the request, if it has left it to Pingora's lane.
pub(in super::super) fn take_decision(exchange: &Exchange) -> Option<EarlierDecision> {
    connection(exchange)?.state.take_decision()
}

/// The request head as the client sent it, except that the fast lane may have put the names of headers in lower case; None on HTTP/2.
pub(in super::super) fn raw_head(exchange: &Exchange) -> Option<&[u8]> {
    connection(exchange).filter(|connection| connection.http2.is_none()).map(|connection| connection.head.head())
}

/// Why the request body cannot be read, if it is the client's fault.
pub(in super::super) fn body_error(exchange: &Exchange) -> Option<Error> {
    connection(exchange)?.state.body_error()
}

/// What the streams of an HTTP/2 connection know about it.
pub(super) struct StreamOrigin {
    pub(super) counted: CountedClient,
    pub(super) transport: Transport,
}

fn stream_origin(exchange: &Exchange) -> Option<&StreamOrigin> {
    exchange.digest()?.proxy_digest.as_ref()?.user_data.as_ref()?.downcast_ref()
}

/// How a request has arrived.
pub(in super::super) fn transport(exchange: &Exchange) -> Transport {
    let of_stream = || stream_origin(exchange).map(|origin| origin.transport);
    connection(exchange).map(|connection| connection.transport).or_else(of_stream).unwrap_or_default()
}

/// Counts a request of HTTP/2 for its client; None on HTTP/1.1, where the connections are counted.
pub(in super::super) fn begin_stream(exchange: &Exchange) -> Result<Option<CountedStream>, Error> {
    if !exchange.is_http2() {
        return Ok(None);
    }
    let origin = stream_origin(exchange);
    let origin = origin.ok_or_else(|| Error::unexpected(Part::Gateway, "a stream without its client's counts"))?;
    origin.counted.begin_stream().map(Some).map_err(|refusal| match refusal {
        StreamRefusal::Client => TOO_MANY_STREAMS,
        StreamRefusal::Process => NO_DESCRIPTOR,
    })
}

/// Marks the exchange as ended, completely or not.
pub(in super::super) fn end_exchange(exchange: &Exchange) {
    if let Some(connection) = connection(exchange) {
        connection.state.phase.store(phase::DONE, Ordering::Release);
    }
}

/// Requests the transport for a tunnel. It arrives when the connection is dropped, after the calling lane has
/// returned.
pub(in super::super) fn detach(exchange: &Exchange) -> Option<oneshot::Receiver<DetachedStream>> {
    Some(connection(exchange)?.state.detach())
}
