//! One exchange with an upstream over HTTP/1.1, for Pingora's lane and for handshakes. A response that can be read in two ways is an
//! error, never repaired: Pingora's own client session repairs contradictory lengths, relays unknown transfer codings until the end
//! of the connection, and accepts folded lines and malformed chunks. Connecting is left to [`connect`](super::connect).

use std::future::poll_fn;
use std::io::{self, Write};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::header::TRANSFER_ENCODING;
use http::{HeaderName, HeaderValue, Method};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::HttpTask;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error as PingoraError, ErrorType, RetryType};
use pingora_http::{RequestHeader, ResponseHeader};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::chunks::InvalidChunk;
use super::exchange_step::{ExchangeStep, PieceEnd, Remaining};
use super::idle_pool::PooledConnection;
use super::response_framing::{InvalidResponse, ResponseBody, ResponseFraming, parse_head};
use crate::domain::header_line::write_line;

/// The most bytes of one read of a body: the payload of one HTTP/2 frame. A client may hold a hundred HTTP/2 streams that it does
/// not read, each with such a piece.
pub(super) const PIECE: usize = 16 * 1024;

/// The size of the first read: a head and a small body.
const FIRST_READ: usize = 4 * 1024;

/// How the request's body is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UploadFraming {
    /// As it is: the head has its length, or there is none.
    Plain,
    Chunked,
}

/// A head that was read.
struct ReadHead {
    header: ResponseHeader,
    framing: ResponseFraming,
    length: usize,
}

impl ReadHead {
    /// Reads a head; `None` if it has not arrived as a whole.
    fn read(bytes: &[u8]) -> Result<Option<Self>, InvalidResponse> {
        parse_head(bytes, |head| {
            let mut parts = http::Response::new(()).into_parts().0;
            (parts.status, parts.version) = (head.status, head.version);
            parts.headers.reserve(head.lines.len());
            for line in head.lines {
                let name = HeaderName::from_bytes(line.name.as_bytes());
                let value =
                    HeaderValue::from_bytes(line.value).map_err(|_| InvalidResponse("a header value is invalid"))?;
                parts.headers.append(name.map_err(|_| InvalidResponse("a header name is invalid"))?, value);
            }
            let is_unusual = !head.reason.is_empty() && Some(head.reason) != head.status.canonical_reason();
            let mut header = ResponseHeader::from(parts);
            if is_unusual {
                let invalid = |_| InvalidResponse("the reason phrase is invalid");
                header.set_reason_phrase(Some(head.reason)).map_err(invalid)?;
            }
            Ok(Self { header, framing: head.framing, length: head.length })
        })
    }
}

/// What a poll has done.
enum Activity {
    Written(io::Result<()>),
    Read(io::Result<usize>),
}

fn write_timed_out() -> Box<PingoraError> {
    PingoraError::explain(ErrorType::WriteTimedout, "writing the request")
}

/// A response that cannot be relayed.
fn invalid(InvalidResponse(reason): InvalidResponse) -> Box<PingoraError> {
    PingoraError::explain(ErrorType::InvalidHTTPHeader, reason)
}

/// An exchange with an upstream over HTTP/1.1.
pub(super) struct Http1Exchange {
    connection: PooledConnection,
    /// What was read and has not been handed on.
    received: BytesMut,
    /// None until the final head.
    rest: Option<ResponseBody>,
    /// Whether anything of a response has come.
    has_begun: bool,
    /// Whether a write has met a reset. The socket reports it only once, so a later read finds the end of the stream instead.
    was_reset: bool,
    keeps_open: bool,
    is_head_request: bool,
    upload: UploadFraming,
    /// What is left to be written of the present piece of the request's body.
    out: Bytes,
    /// What follows that piece; `None` if there is none on its way.
    remaining: Option<Remaining>,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
}

impl Http1Exchange {
    pub(super) fn new(connection: PooledConnection, peer: &HttpPeer) -> Self {
        let (read_timeout, write_timeout) = (peer.options.read_timeout, peer.options.write_timeout);
        Self { read_timeout, write_timeout, ..Self::without_timeouts(connection) }
    }

    /// An exchange whose caller limits its time as a whole.
    pub(super) fn without_timeouts(connection: PooledConnection) -> Self {
        Self {
            connection,
            received: BytesMut::new(),
            rest: None,
            has_begun: false,
            was_reset: false,
            keeps_open: false,
            is_head_request: false,
            upload: UploadFraming::Plain,
            out: Bytes::new(),
            remaining: None,
            read_timeout: None,
            write_timeout: None,
        }
    }

    /// Sends a head that is encoded already, of a request without a body.
    pub(super) async fn write_head(&mut self, head: &[u8]) -> pingora_core::Result<()> {
        self.write(&[head]).await.map_err(|mut error| {
            if *error.etype() == ErrorType::WriteError {
                error.retry = RetryType::ReusedOnly;
            }
            error
        })
    }

    /// Sends a head. Its headers say how the body is framed.
    pub(super) async fn write_header(&mut self, header: &RequestHeader) -> pingora_core::Result<()> {
        self.is_head_request = header.method == Method::HEAD;
        self.upload = match header.headers.contains_key(TRANSFER_ENCODING) {
            true => UploadFraming::Chunked,
            false => UploadFraming::Plain,
        };
        let mut head = Vec::with_capacity(2048);
        for piece in [header.method.as_str().as_bytes(), b" ", header.raw_path(), b" HTTP/1.1\r\n"] {
            head.extend_from_slice(piece);
        }
        for (name, value) in &header.headers {
            write_line(&mut head, name.as_str(), value.as_bytes());
        }
        head.extend_from_slice(b"\r\n");
        self.write_head(&head).await
    }

    /// Begins to send a piece of the body, and its end if nothing remains.
    pub(super) fn begin_piece(&mut self, piece: Bytes, remaining: Remaining) {
        self.remaining = Some(remaining);
        self.out = match self.upload {
            UploadFraming::Plain => piece,
            UploadFraming::Chunked => {
                let mut out = Vec::with_capacity(piece.len() + 32);
                // An empty chunk would end the body.
                if !piece.is_empty() {
                    // Writing into memory does not fail.
                    let _ = write!(out, "{:x}\r\n", piece.len());
                    out.extend_from_slice(&piece);
                    out.extend_from_slice(b"\r\n");
                }
                if remaining == Remaining::Nothing {
                    out.extend_from_slice(b"0\r\n\r\n");
                }
                out.into()
            }
        };
    }

    /// Whether a piece of the body is on its way.
    pub(super) fn is_writing(&self) -> bool {
        self.remaining.is_some()
    }

    /// Sends the piece that is on its way to its end. Can be cancelled without a loss.
    pub(super) async fn finish_piece(&mut self) -> PieceEnd {
        match self.within_write_timeout(|me, cx| me.poll_write(cx)).await {
            Ok(written) => self.end_piece(written),
            Err(error) => PieceEnd::Refused(error),
        }
    }

    fn end_piece(&mut self, written: io::Result<()>) -> PieceEnd {
        let remaining = self.remaining.take().unwrap_or(Remaining::Something);
        match written {
            Ok(()) => PieceEnd::sent(remaining),
            Err(cause) => {
                self.out = Bytes::new();
                PieceEnd::Refused(self.write_failure(cause))
            }
        }
    }

    /// Goes on with the piece that is on its way and reads the response meanwhile: an upstream may answer before it has taken the whole
    /// request. Can be cancelled without a loss.
    pub(super) async fn progress(&mut self) -> pingora_core::Result<ExchangeStep> {
        loop {
            if !self.is_writing() {
                return self.read_part().await.map(ExchangeStep::Response);
            }
            if let Some(part) = self.next_read_part()? {
                return Ok(ExchangeStep::Response(part));
            }
            let moved = self.within_write_timeout(|me, cx| match me.poll_write(cx) {
                Poll::Ready(written) => Poll::Ready(Activity::Written(written)),
                Poll::Pending => me.poll_read(cx).map(Activity::Read),
            });
            match moved.await? {
                Activity::Written(written) => return Ok(ExchangeStep::Piece(self.end_piece(written))),
                Activity::Read(read) => {
                    if let Some(part) = self.note_read(read)? {
                        return Ok(ExchangeStep::Response(part));
                    }
                }
            }
        }
    }

    async fn within_write_timeout<T>(
        &mut self,
        mut poll: impl FnMut(&mut Self, &mut Context<'_>) -> Poll<T>,
    ) -> pingora_core::Result<T> {
        let limit = self.write_timeout;
        let writing = poll_fn(|cx| poll(self, cx));
        match limit {
            Some(limit) => pingora_timeout::timeout(limit, writing).await.map_err(|_| write_timed_out()),
            None => Ok(writing.await),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = &mut self.connection.stream;
        while !self.out.is_empty() {
            match ready!(Pin::new(&mut *stream).poll_write(cx, &self.out))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.out.advance(count),
            }
        }
        Pin::new(stream).poll_flush(cx)
    }

    /// The failure of a write, after which no more of the request is written.
    fn write_failure(&mut self, cause: io::Error) -> Box<PingoraError> {
        self.was_reset = cause.kind() == io::ErrorKind::ConnectionReset;
        PingoraError::because(ErrorType::WriteError, "writing the request", cause)
    }

    async fn write(&mut self, pieces: &[&[u8]]) -> pingora_core::Result<()> {
        let stream = &mut self.connection.stream;
        let writing = async {
            for piece in pieces {
                stream.write_all(piece).await?;
            }
            stream.flush().await
        };
        let written = match self.write_timeout {
            Some(limit) => pingora_timeout::timeout(limit, writing).await.map_err(|_| write_timed_out())?,
            None => writing.await,
        };
        written.map_err(|cause| self.write_failure(cause))
    }

    /// Whether the response has been read to its end.
    pub(super) fn is_done(&self) -> bool {
        self.rest.is_some_and(|rest| rest.is_complete())
    }

    /// Reads the next part of the response. Can be cancelled without a loss.
    pub(super) async fn read_part(&mut self) -> pingora_core::Result<HttpTask> {
        loop {
            if let Some(part) = self.next_read_part()? {
                return Ok(part);
            }
            let limit = self.read_timeout;
            let reading = poll_fn(|cx| self.poll_read(cx));
            let read = match limit {
                Some(limit) => pingora_timeout::timeout(limit, reading)
                    .await
                    .map_err(|_| PingoraError::explain(ErrorType::ReadTimedout, "reading the response"))?,
                None => reading.await,
            };
            if let Some(part) = self.note_read(read)? {
                return Ok(part);
            }
        }
    }

    /// The next part of the response, if it has been read already.
    pub(super) fn next_read_part(&mut self) -> pingora_core::Result<Option<HttpTask>> {
        match self.rest {
            None => self.take_head(),
            Some(rest) if rest.is_complete() => Ok(Some(HttpTask::Done)),
            Some(_) => self.take_body(),
        }
    }

    fn take_head(&mut self) -> pingora_core::Result<Option<HttpTask>> {
        if self.received.is_empty() {
            return Ok(None);
        }
        let Some(ReadHead { header, framing, length }) = ReadHead::read(&self.received).map_err(invalid)? else {
            return Ok(None);
        };
        self.received.advance(length);
        if header.status.is_informational() {
            return Ok(Some(HttpTask::Header(Box::new(header), false)));
        }
        let has_no_body = self.is_head_request || matches!(header.status.as_u16(), 204 | 304);
        let rest = if has_no_body { ResponseBody::COMPLETE } else { framing.body() };
        let keeps_open = framing.keeps_open(header.version);
        (self.rest, self.keeps_open) = (Some(rest), keeps_open);
        Ok(Some(HttpTask::Header(Box::new(header), rest.is_complete())))
    }

    fn take_body(&mut self) -> pingora_core::Result<Option<HttpTask>> {
        let Some(rest) = self.rest.as_mut().filter(|_| !self.received.is_empty()) else { return Ok(None) };
        let piece: Bytes = match rest {
            ResponseBody::Length(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(self.received.len());
                *left -= count as u64;
                self.received.split_to(count).freeze()
            }
            ResponseBody::Chunked(chunks) => {
                let mut data = Vec::with_capacity(self.received.len());
                let count = chunks.decode(&self.received, |piece| data.extend_from_slice(piece));
                let count =
                    count.map_err(|InvalidChunk| invalid(InvalidResponse("a chunk of the response is malformed")))?;
                self.received.advance(count);
                data.into()
            }
            ResponseBody::UntilClose => self.received.split().freeze(),
        };
        let is_last = rest.is_complete();
        // The bytes of a chunk's size alone are no part yet.
        Ok((is_last || !piece.is_empty())
            .then(|| HttpTask::Body(Some(piece).filter(|piece| !piece.is_empty()), is_last)))
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let most = if self.rest.is_none() { FIRST_READ } else { PIECE };
        self.received.reserve(most);
        let mut limited = (&mut self.connection.stream).take(most as u64);
        pin!(limited.read_buf(&mut self.received)).poll(cx)
    }

    /// Takes note of a read. A connection that ends is an error, unless that is the end of the response, which is returned then.
    fn note_read(&mut self, read: io::Result<usize>) -> pingora_core::Result<Option<HttpTask>> {
        let mut error = match read {
            Ok(0) if self.was_reset => PingoraError::explain(ErrorType::ReadError, "the upstream reset its connection"),
            Ok(0) if self.rest == Some(ResponseBody::UntilClose) => {
                (self.rest, self.keeps_open) = (Some(ResponseBody::COMPLETE), false);
                return Ok(Some(HttpTask::Body(None, true)));
            }
            Ok(0) => PingoraError::explain(ErrorType::ConnectionClosed, "the upstream closed its connection"),
            Ok(_) => {
                self.has_begun = true;
                return Ok(None);
            }
            Err(cause) => PingoraError::because(ErrorType::ReadError, "reading the response", cause),
        };
        if !self.has_begun {
            error.retry = RetryType::ReusedOnly;
        }
        Err(error)
    }

    /// The connection after a 101, and what came behind that.
    pub(super) fn into_upgraded(self) -> (Stream, Bytes) {
        (self.connection.stream, self.received.freeze())
    }

    /// The connection, if it can serve another request: the response is complete, and nothing came behind it.
    pub(super) fn into_reusable(self) -> Option<PooledConnection> {
        (self.is_done() && self.keeps_open && self.received.is_empty()).then_some(self.connection)
    }
}

#[cfg(test)]
mod tests;
