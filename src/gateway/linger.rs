//! Closes a connection whose client may still be sending. The kernel resets a connection that is closed with unread bytes,
//! and the client would lose a response that it has not read yet. So its side is closed first, and what the client sends is
//! read and discarded until it closes its own.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

use pingora_core::protocols::Stream;
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
