//! One exchange with an upstream, over HTTP/1.1 or HTTP/2, in the terms of both: a header, pieces of a body, trailers.
//! Connecting is left to [`connect`](super::connect).

use bytes::Bytes;
use pingora_core::protocols::http::HttpTask;
use pingora_http::RequestHeader;

use super::exchange_step::{ExchangeStep, PieceEnd, Remaining};
use super::failure::internal_error;
use super::http1_exchange::Http1Exchange;
use super::http2_exchange::Http2Exchange;

/// An exchange with an upstream.
pub(super) enum UpstreamSession {
    Http1(Box<Http1Exchange>),
    Http2(Box<Http2Exchange>),
}

impl UpstreamSession {
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
            Self::Http2(exchange) => exchange.begin_piece(piece, remaining),
        }
    }

    /// Whether a piece of the body is on its way.
    pub(super) fn is_writing(&self) -> bool {
        match self {
            Self::Http1(session) => session.is_writing(),
            Self::Http2(exchange) => exchange.is_writing(),
        }
    }

    /// Sends the piece that is on its way to its end. Can be cancelled without a loss.
    pub(super) async fn finish_piece(&mut self) -> PieceEnd {
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
            Self::Http2(exchange) => exchange.read_part().await,
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
