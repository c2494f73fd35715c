//! One exchange with an upstream, over HTTP/1.1 or HTTP/2, in the terms of both: a header, pieces of a body, trailers.
//! Connecting is left to [`connect`](super::connect).

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use pingora_core::protocols::http::HttpTask;
use pingora_core::protocols::http::v2::client::Http2Session;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error as PingoraError, ErrorType};
use pingora_http::RequestHeader;

use super::connector::SharedStream;
use super::failure::internal_error;
use super::http1_exchange::Http1Exchange;

/// Whether something follows a header or a piece of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remaining {
    Something,
    Nothing,
}

impl Remaining {
    pub(super) fn after(is_last: bool) -> Self {
        if is_last { Self::Nothing } else { Self::Something }
    }
}

/// What has happened in an exchange.
pub(super) enum ExchangeStep {
    Response(HttpTask),
    /// The piece of the request's body that was on its way has been sent.
    PieceSent,
    /// The upstream takes no more of the request's body. Its response may come all the same.
    PieceRefused(Box<PingoraError>),
}

/// An exchange with an upstream.
pub(super) enum UpstreamSession {
    Http1(Box<Http1Exchange>),
    Http2(Box<Http2Exchange>),
}

/// An exchange over HTTP/2.
pub(super) struct Http2Exchange {
    /// The direction to the upstream, once the header has been sent.
    writer: Option<SendStream<Bytes>>,
    /// What is left to be sent of the present piece of the request's body.
    out: Bytes,
    /// Whether that piece is on its way, and whether the body ends behind it.
    writing: Option<Remaining>,
    write_timeout: Option<Duration>,
    stream: SharedStream,
}

impl UpstreamSession {
    pub(super) fn over_http2(mut stream: SharedStream, peer: &HttpPeer) -> Self {
        if let Ok(session) = stream.session() {
            session.read_timeout = peer.options.read_timeout;
        }
        let write_timeout = peer.options.write_timeout;
        Self::Http2(Box::new(Http2Exchange { writer: None, out: Bytes::new(), writing: None, write_timeout, stream }))
    }

    /// Sends the header.
    pub(super) async fn write_header(&mut self, header: RequestHeader, body: Remaining) -> pingora_core::Result<()> {
        match self {
            Self::Http1(session) => session.write_header(&header).await,
            Self::Http2(exchange) => exchange.write_header(header, body),
        }
    }

    /// Sends the head of a request without a body, encoded for HTTP/1.1, and reads the first part of the response.
    pub(super) async fn exchange_head(&mut self, head: &[u8]) -> pingora_core::Result<HttpTask> {
        let Self::Http1(session) = self else { return Err(internal_error("a head for HTTP/1.1 on HTTP/2")) };
        session.write_head(head).await?;
        session.read_part().await
    }

    /// Begins to send a piece of the body, and its end if nothing remains.
    pub(super) fn begin_piece(&mut self, piece: Bytes, remaining: Remaining) {
        match self {
            Self::Http1(session) => session.begin_piece(piece, remaining),
            Self::Http2(exchange) => (exchange.out, exchange.writing) = (piece, Some(remaining)),
        }
    }

    /// Whether a piece of the body is on its way.
    pub(super) fn is_writing(&self) -> bool {
        match self {
            Self::Http1(session) => session.is_writing(),
            Self::Http2(exchange) => exchange.writing.is_some(),
        }
    }

    /// Sends the piece that is on its way to its end. Can be cancelled without a loss.
    pub(super) async fn finish_piece(&mut self) -> ExchangeStep {
        match self {
            Self::Http1(session) => session.finish_piece().await,
            Self::Http2(exchange) => exchange.finish_piece().await,
        }
    }

    /// Goes on with the piece that is on its way and reads the response meanwhile: an upstream may answer before it has taken the whole
    /// request. Can be cancelled without a loss.
    pub(super) async fn progress(&mut self) -> pingora_core::Result<ExchangeStep> {
        match self {
            Self::Http1(session) => session.progress().await,
            Self::Http2(exchange) => exchange.progress().await,
        }
    }

    /// Reads the next part of the response. Can be cancelled without a loss.
    pub(super) async fn read_part(&mut self) -> pingora_core::Result<HttpTask> {
        match self {
            Self::Http1(session) => session.read_part().await,
            Self::Http2(exchange) => read_http2_part(exchange.stream.session()?).await,
        }
    }

    /// The next part of the response, if it has been read already.
    pub(super) fn next_read_part(&mut self) -> pingora_core::Result<Option<HttpTask>> {
        match self {
            Self::Http1(session) => session.next_read_part(),
            Self::Http2(_) => Ok(None),
        }
    }
}

impl Http2Exchange {
    fn write_header(&mut self, header: RequestHeader, body: Remaining) -> pingora_core::Result<()> {
        let session = self.stream.session()?;
        session.write_request_header(Box::new(header), body == Remaining::Nothing)?;
        self.writer = session.take_request_body_writer();
        Ok(())
    }

    async fn finish_piece(&mut self) -> ExchangeStep {
        let Self { writer, out, writing, write_timeout, .. } = self;
        send_piece(writer, out, writing, *write_timeout).await
    }

    async fn progress(&mut self) -> pingora_core::Result<ExchangeStep> {
        let Self { writer, out, writing, write_timeout, stream } = self;
        let session = stream.session()?;
        if writing.is_none() {
            return read_http2_part(session).await.map(ExchangeStep::Response);
        }
        tokio::select! {
            biased;
            sent = send_piece(writer, out, writing, *write_timeout) => Ok(sent),
            part = read_http2_part(session) => part.map(ExchangeStep::Response),
        }
    }
}

/// Sends a piece of a body as fast as the upstream takes it. Can be cancelled without a loss.
async fn send_piece(
    writer: &mut Option<SendStream<Bytes>>,
    out: &mut Bytes,
    writing: &mut Option<Remaining>,
    limit: Option<Duration>,
) -> ExchangeStep {
    let Some((writer, remaining)) = writer.as_mut().zip(*writing) else { return ExchangeStep::PieceSent };
    let sending = poll_fn(|cx| poll_send(writer, out, remaining, cx));
    let sent = match limit {
        Some(limit) => pingora_timeout::timeout(limit, sending)
            .await
            .map_err(|_| PingoraError::explain(ErrorType::WriteTimedout, "writing the request")),
        None => Ok(sending.await),
    };
    (*out, *writing) = (Bytes::new(), None);
    match sent {
        Ok(Ok(())) => ExchangeStep::PieceSent,
        Ok(Err(cause)) => {
            ExchangeStep::PieceRefused(PingoraError::because(ErrorType::WriteError, "writing the request", cause))
        }
        Err(error) => ExchangeStep::PieceRefused(error),
    }
}

fn poll_send(
    writer: &mut SendStream<Bytes>,
    out: &mut Bytes,
    remaining: Remaining,
    cx: &mut Context<'_>,
) -> Poll<Result<(), h2::Error>> {
    let ends = remaining == Remaining::Nothing;
    if out.is_empty() && ends {
        return Poll::Ready(writer.send_data(Bytes::new(), true));
    }
    while !out.is_empty() {
        writer.reserve_capacity(out.len());
        let mut room = writer.capacity();
        if room == 0 {
            room = match ready!(writer.poll_capacity(cx)) {
                Some(room) => room?,
                None => return Poll::Ready(Err(h2::Reason::STREAM_CLOSED.into())),
            };
        }
        let piece = out.split_to(room.min(out.len()));
        if !piece.is_empty() {
            writer.send_data(piece, ends && out.is_empty())?;
        }
    }
    Poll::Ready(Ok(()))
}

/// Whether the response has ended. An upstream that wants no more of the request resets the stream behind its response, without
/// an error (RFC 9113, section 8.1).
fn has_ended(session: &mut Http2Session) -> pingora_core::Result<bool> {
    session.check_response_end_or_error().or_else(|error| {
        let cause = error.root_cause().downcast_ref::<h2::Error>();
        let is_complete = cause
            .is_some_and(|cause| cause.is_reset() && cause.is_remote() && cause.reason() == Some(h2::Reason::NO_ERROR));
        if is_complete { Ok(true) } else { Err(error) }
    })
}

async fn read_http2_part(session: &mut Http2Session) -> pingora_core::Result<HttpTask> {
    if session.response_header().is_none() {
        session.read_response_header().await?;
        let is_done = has_ended(session)?;
        return match session.response_header() {
            Some(header) => Ok(HttpTask::Header(Box::new(header.clone()), is_done)),
            None => Ok(HttpTask::Done),
        };
    }
    match session.read_response_body().await? {
        Some(piece) => {
            let is_done = has_ended(session)?;
            Ok(HttpTask::Body(Some(piece), is_done))
        }
        None => Ok(HttpTask::Trailer(session.read_trailers().await?.map(Box::new))),
    }
}
