//! One exchange with an upstream over HTTP/2. Pingora's session is its reading half. The writing half is polled here, so that
//! the response is read while a piece of the request's body waits for room.

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
use super::exchange_step::{ExchangeStep, PieceEnd, Remaining};

/// An exchange over HTTP/2.
pub(super) struct Http2Exchange {
    /// Dropped before the stream, which counts as in use until then.
    upload: Http2Upload,
    stream: SharedStream,
}

/// The request's body on its way to the upstream.
struct Http2Upload {
    /// None until the header has been sent.
    writer: Option<SendStream<Bytes>>,
    /// What is left to be sent of the present piece.
    out: Bytes,
    /// What follows that piece; `None` if there is none on its way.
    remaining: Option<Remaining>,
    timeout: Option<Duration>,
}

impl Http2Exchange {
    pub(super) fn new(mut stream: SharedStream, peer: &HttpPeer) -> Self {
        if let Ok(session) = stream.session() {
            session.read_timeout = peer.options.read_timeout;
        }
        let timeout = peer.options.write_timeout;
        Self { upload: Http2Upload { writer: None, out: Bytes::new(), remaining: None, timeout }, stream }
    }

    pub(super) fn write_header(&mut self, header: RequestHeader, body: Remaining) -> pingora_core::Result<()> {
        let session = self.stream.session()?;
        session.write_request_header(Box::new(header), body == Remaining::Nothing)?;
        self.upload.writer = session.take_request_body_writer();
        Ok(())
    }

    pub(super) fn begin_piece(&mut self, piece: Bytes, remaining: Remaining) {
        (self.upload.out, self.upload.remaining) = (piece, Some(remaining));
    }

    pub(super) fn is_writing(&self) -> bool {
        self.upload.remaining.is_some()
    }

    pub(super) async fn finish_piece(&mut self) -> PieceEnd {
        self.upload.send().await.unwrap_or_else(PieceEnd::Refused)
    }

    pub(super) async fn progress(&mut self) -> pingora_core::Result<ExchangeStep> {
        let session = self.stream.session()?;
        if self.upload.remaining.is_none() {
            return read_part(session).await.map(ExchangeStep::Response);
        }
        let part = tokio::select! {
            biased;
            end = self.upload.send() => return end.map(ExchangeStep::Piece),
            part = read_part(session) => part,
        };
        self.upload.release_capacity();
        part.map(ExchangeStep::Response)
    }

    pub(super) async fn read_part(&mut self) -> pingora_core::Result<HttpTask> {
        read_part(self.stream.session()?).await
    }
}

impl Http2Upload {
    /// Sends the piece as fast as the upstream takes it. An error is a timeout.
    async fn send(&mut self) -> pingora_core::Result<PieceEnd> {
        let limit = self.timeout;
        let sending = poll_fn(|cx| self.poll_send(cx));
        let sent = match limit {
            Some(limit) => pingora_timeout::timeout(limit, sending)
                .await
                .map_err(|_| PingoraError::explain(ErrorType::WriteTimedout, "writing the request"))?,
            None => sending.await,
        };
        let remaining = self.remaining.take().unwrap_or(Remaining::Something);
        Ok(match sent {
            Ok(()) => PieceEnd::sent(remaining),
            Err(cause) => {
                self.out = Bytes::new();
                PieceEnd::Refused(PingoraError::because(ErrorType::WriteError, "writing the request", cause))
            }
        })
    }

    /// Gives the capacity that is not used back to the other streams of the connection, while the client takes a part of the response.
    fn release_capacity(&mut self) {
        if let Some(writer) = &mut self.writer {
            writer.reserve_capacity(0);
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let Some(writer) = &mut self.writer else { return Poll::Ready(Ok(())) };
        let ends = self.remaining == Some(Remaining::Nothing);
        if self.out.is_empty() && ends {
            return Poll::Ready(writer.send_data(Bytes::new(), true));
        }
        while !self.out.is_empty() {
            writer.reserve_capacity(self.out.len());
            let mut room = writer.capacity();
            if room == 0 {
                room = match ready!(writer.poll_capacity(cx)) {
                    Some(room) => room?,
                    None => return Poll::Ready(Err(h2::Reason::STREAM_CLOSED.into())),
                };
            }
            let piece = self.out.split_to(room.min(self.out.len()));
            if !piece.is_empty() {
                writer.send_data(piece, ends && self.out.is_empty())?;
            }
        }
        Poll::Ready(Ok(()))
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

async fn read_part(session: &mut Http2Session) -> pingora_core::Result<HttpTask> {
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
