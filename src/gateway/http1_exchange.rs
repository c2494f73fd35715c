//! One exchange with an upstream over HTTP/1.1, for Pingora's lane and for handshakes. A response that can be read in two ways is an
//! error, never repaired: Pingora's own client session repairs contradictory lengths, relays unknown transfer codings until the end
//! of the connection, and accepts folded lines and malformed chunks. Connecting is left to [`connect`](super::connect).

use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::header::TRANSFER_ENCODING;
use http::{HeaderName, HeaderValue, Method};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::HttpTask;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error as PingoraError, ErrorType, RetryType};
use pingora_http::{RequestHeader, ResponseHeader};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::chunks::InvalidChunk;
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

    /// Sends a piece of the body.
    pub(super) async fn write_body(&mut self, piece: &[u8]) -> pingora_core::Result<()> {
        match self.upload {
            UploadFraming::Plain => self.write(&[piece]).await,
            UploadFraming::Chunked => self.write(&[format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"]).await,
        }
    }

    /// Ends the body.
    pub(super) async fn finish_body(&mut self) -> pingora_core::Result<()> {
        match self.upload {
            UploadFraming::Plain => Ok(()),
            UploadFraming::Chunked => self.write(&[b"0\r\n\r\n"]).await,
        }
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
            Some(limit) => pingora_timeout::timeout(limit, writing)
                .await
                .map_err(|_| PingoraError::explain(ErrorType::WriteTimedout, "writing the request"))?,
            None => writing.await,
        };
        written.map_err(|cause| {
            self.was_reset = cause.kind() == io::ErrorKind::ConnectionReset;
            PingoraError::because(ErrorType::WriteError, "writing the request", cause)
        })
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
            match self.read().await {
                Ok(()) => self.has_begun = true,
                Err(error)
                    if self.rest == Some(ResponseBody::UntilClose) && *error.etype() == ErrorType::ConnectionClosed =>
                {
                    (self.rest, self.keeps_open) = (Some(ResponseBody::COMPLETE), false);
                    return Ok(HttpTask::Body(None, true));
                }
                Err(error) => return Err(error),
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

    /// Reads something. A connection that ends is an error.
    async fn read(&mut self) -> pingora_core::Result<()> {
        let most = if self.rest.is_none() { FIRST_READ } else { PIECE };
        self.received.reserve(most);
        let mut limited = (&mut self.connection.stream).take(most as u64);
        let reading = limited.read_buf(&mut self.received);
        let read = match self.read_timeout {
            Some(limit) => pingora_timeout::timeout(limit, reading)
                .await
                .map_err(|_| PingoraError::explain(ErrorType::ReadTimedout, "reading the response"))?,
            None => reading.await,
        };
        let mut error = match read {
            Ok(0) if self.was_reset => PingoraError::explain(ErrorType::ReadError, "the upstream reset its connection"),
            Ok(0) => PingoraError::explain(ErrorType::ConnectionClosed, "the upstream closed its connection"),
            Ok(_) => return Ok(()),
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
