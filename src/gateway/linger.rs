//! Closes a connection whose client may still be sending. The kernel resets a connection that is closed with unread bytes,
//! and the client would lose a response that it has not read yet. So its side is closed first, and what the client sends is
//! read and discarded until it closes its own. Streams of HTTP/2 get a moment for the same reason.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession as Exchange;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

/// How long a client may go on sending altogether.
const LONGEST: Duration = Duration::from_secs(30);

/// How long it may pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How much it may send: most uploads to a wrong address or without a token are smaller.
const MOST_BYTES: usize = 64 << 20;

/// The most bytes of one read.
const PIECE: usize = 16 * 1024;

/// How long a client of HTTP/2 has to end a request that is answered, and how much of its body is read meanwhile: what its first
/// window admits, so that a small body ends at once and a large one stalls.
const STREAM_GRACE: Duration = Duration::from_secs(2);
const MOST_STREAM_BYTES: usize = 64 * 1024;

/// Waits until a client of HTTP/2 has ended a request that is answered. Some clients lose a response if a reset is right behind
/// it, although the reset says that there was no error (RFC 9113, section 8.1).
pub(super) async fn end_stream(exchange: &mut Exchange) {
    let ending = async {
        let mut left = MOST_STREAM_BYTES;
        while left > 0 {
            match exchange.read_request_body().await {
                Ok(Some(bytes)) => left = left.saturating_sub(bytes.len()),
                // The body has ended, or the client has reset the stream.
                Ok(None) | Err(_) => return,
            }
        }
        let _ = exchange.read_body_or_idle(true).await;
    };
    let _ = timeout(STREAM_GRACE, ending).await;
}

/// Closes a connection to which everything has been written.
pub(super) async fn close(mut stream: Stream) {
    let closing = async {
        // Fails if the client has closed the connection.
        let _ = AsyncWriteExt::shutdown(&mut stream).await;
        let mut left = MOST_BYTES;
        while let Ok(count @ 1..) = timeout(LONGEST_PAUSE, discard(&mut stream)).await.unwrap_or(Ok(0)) {
            left = left.saturating_sub(count);
            if left == 0 {
                return;
            }
        }
    };
    let _ = timeout(LONGEST, closing).await;
}

/// Reads once and discards what was read. Returns how much that was.
async fn discard(stream: &mut Stream) -> std::io::Result<usize> {
    poll_fn(|cx| {
        let mut bytes = [const { MaybeUninit::uninit() }; PIECE];
        let mut buffer = ReadBuf::uninit(&mut bytes);
        ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    })
    .await
}
