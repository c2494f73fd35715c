//! The client's side of an exchange: reads the body of its request and writes to it, with the connection's limits.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use arc_swap::ArcSwap;
use pingora_core::{Error as PingoraError, ErrorType};
use tokio::io::{AsyncReadExt, AsyncWrite};

use super::super::chunks::{ChunkValidator, InvalidChunk};
use super::super::connection::{AnnouncedBody, Connection};
use crate::config::LimitsConfig;
use crate::error::Error;

/// The room for a read of a request's body, at least: uploads are usually small.
const READ: usize = 16 * 1024;

/// The client of a request.
pub(super) struct LaneClient<'a> {
    pub(super) connection: &'a mut Connection,
    body: UnreadBody,
    /// How many bytes of the body have been read.
    pub(super) received: usize,
    /// Has the time for one write to the client (`stalled`). Looked up only if a write has to wait.
    limits: &'a ArcSwap<LimitsConfig>,
}

/// What is left of a request's body. The connection tracks the body, too: it gives Pingora's lane the chunks as they are, and refuses
/// what is malformed for both. Here they are decoded.
enum UnreadBody {
    Length(u64),
    /// Chunks, and the bytes of the last read.
    Chunked(ChunkValidator, Vec<u8>),
}

impl<'a> LaneClient<'a> {
    /// Begins the exchange of a request whose head was read, so that the connection reads its body next.
    pub(super) fn begin(
        connection: &'a mut Connection,
        announced: AnnouncedBody,
        limits: &'a ArcSwap<LimitsConfig>,
    ) -> Self {
        connection.begin_fast(announced);
        let body = match announced {
            AnnouncedBody::Length(length) => UnreadBody::Length(length),
            AnnouncedBody::Chunked => UnreadBody::Chunked(ChunkValidator::new(), Vec::new()),
        };
        Self { connection, body, received: 0, limits }
    }

    /// Whether the body has been read to its end.
    pub(super) fn is_body_read(&self) -> bool {
        match &self.body {
            UnreadBody::Length(left) => *left == 0,
            UnreadBody::Chunked(chunks, _) => chunks.is_done(),
        }
    }

    pub(super) fn is_chunked(&self) -> bool {
        matches!(self.body, UnreadBody::Chunked(..))
    }

    /// Why the body cannot be read, if it is the client's fault.
    pub(super) fn body_error(&self) -> Option<Error> {
        self.connection.body_error()
    }

    /// Reads on and adds the data of the body to `data`: without the sizes of chunks, their extensions, and trailers.
    pub(super) fn poll_body(&mut self, data: &mut Vec<u8>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let count = match &mut self.body {
            UnreadBody::Length(left) => {
                // The connection gives no byte behind the body.
                data.reserve(usize::try_from(*left).unwrap_or(READ).min(READ));
                let count = ready!(pin!(self.connection.read_buf(data)).poll(cx))?;
                *left = left.saturating_sub(count as u64);
                count
            }
            UnreadBody::Chunked(chunks, raw) => {
                raw.clear();
                raw.reserve(READ);
                let count = ready!(pin!(self.connection.read_buf(raw)).poll(cx))?;
                let decoded = chunks.decode(raw, |bytes| data.extend_from_slice(bytes));
                decoded.map_err(|InvalidChunk| io::Error::from(io::ErrorKind::InvalidData))?;
                count
            }
        };
        self.received += count;
        Poll::Ready(if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) })
    }

    /// Writes to the client and flushes, so that the beginning of a response does not wait for the rest. `meanwhile` runs while the client
    /// takes nothing.
    pub(super) async fn write(
        &mut self,
        bytes: &[u8],
        mut meanwhile: impl FnMut(&mut Self, &mut Context<'_>) -> pingora_core::Result<()>,
    ) -> pingora_core::Result<()> {
        let (mut rest, mut is_first) = (bytes, true);
        poll_fn(|cx| {
            match poll_write_all(self.connection, &mut rest, cx) {
                // The error may be that of a client below the minimum rate. It is no timeout here, because the connection has counted
                // it, and `FastExchange::fail` counts timeouts.
                Poll::Ready(written) => return Poll::Ready(written.map_err(write_error)),
                Poll::Pending => meanwhile(self, cx)?,
            }
            let begins = std::mem::take(&mut is_first).then(Instant::now);
            let stalled = self.limits.load().stalled.get();
            ready!(self.connection.poll_wait(begins, stalled, cx));
            Poll::Ready(Err(PingoraError::explain(ErrorType::WriteTimedout, "writing to the client").into_down()))
        })
        .await
    }
}

fn poll_write_all(connection: &mut Connection, rest: &mut &[u8], cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    while !rest.is_empty() {
        match ready!(connection.poll_send(rest, cx))? {
            0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            count => *rest = &rest[count..],
        }
    }
    Pin::new(connection).poll_flush(cx)
}

fn write_error(cause: io::Error) -> Box<PingoraError> {
    PingoraError::because(ErrorType::WriteError, "writing to the client", cause).into_down()
}

/// The error of a body that the client does not send to its end.
pub(super) fn read_error(cause: io::Error) -> Box<PingoraError> {
    let kind =
        if cause.kind() == io::ErrorKind::UnexpectedEof { ErrorType::ConnectionClosed } else { ErrorType::ReadError };
    PingoraError::because(kind, "reading the request", cause).into_down()
}
