//! One exchange with an upstream, over HTTP/1.1 or HTTP/2, in the terms of both: a header, pieces of a body, trailers.
//! Connecting is left to [`connect`](super::connect).

use bytes::Bytes;
use pingora_core::protocols::http::HttpTask;
use pingora_core::protocols::http::v2::client::Http2Session;
use pingora_core::upstreams::peer::HttpPeer;
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

/// An exchange with an upstream.
pub(super) enum UpstreamSession {
    Http1(Box<Http1Exchange>),
    Http2(SharedStream),
}

impl UpstreamSession {
    pub(super) fn over_http2(mut stream: SharedStream, peer: &HttpPeer) -> Self {
        if let Ok(session) = stream.session() {
            session.read_timeout = peer.options.read_timeout;
            session.write_timeout = peer.options.write_timeout;
        }
        Self::Http2(stream)
    }

    /// Sends the header.
    pub(super) async fn write_header(&mut self, header: RequestHeader, body: Remaining) -> pingora_core::Result<()> {
        match self {
            Self::Http1(session) => session.write_header(&header).await,
            Self::Http2(stream) => stream.session()?.write_request_header(Box::new(header), body == Remaining::Nothing),
        }
    }

    /// Sends the head of a request without a body, encoded for HTTP/1.1, and reads the first part of the response.
    pub(super) async fn exchange_head(&mut self, head: &[u8]) -> pingora_core::Result<HttpTask> {
        let Self::Http1(session) = self else { return Err(internal_error("a head for HTTP/1.1 on HTTP/2")) };
        session.write_head(head).await?;
        session.read_part().await
    }

    /// Sends a piece of the body, and its end if nothing remains.
    pub(super) async fn write_body(&mut self, piece: Option<Bytes>, remaining: Remaining) -> pingora_core::Result<()> {
        // An empty chunk would end the body.
        let piece = piece.filter(|piece| !piece.is_empty());
        let is_last = remaining == Remaining::Nothing;
        match (self, piece) {
            (Self::Http1(session), piece) => {
                if let Some(piece) = piece {
                    session.write_body(&piece).await?;
                }
                if is_last {
                    session.finish_body().await?;
                }
                Ok(())
            }
            (Self::Http2(stream), Some(piece)) => stream.session()?.write_request_body(piece, is_last).await,
            (Self::Http2(stream), None) if is_last => stream.session()?.finish_request_body(),
            (Self::Http2(_), None) => Ok(()),
        }
    }

    /// Reads the next part of the response. Can be cancelled without a loss.
    pub(super) async fn read_part(&mut self) -> pingora_core::Result<HttpTask> {
        match self {
            Self::Http1(session) => session.read_part().await,
            Self::Http2(stream) => read_http2_part(stream.session()?).await,
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
