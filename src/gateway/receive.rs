//! Reads from a connection and appends to a buffer.

use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use pingora_core::protocols::Stream;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use super::buffer::{Buffer, CAPACITY};
use super::plain_stream::PlainStream;

/// Reads the bytes that have arrived and returns their number; 0 is the end of the stream. A buffer without memory gets some only if
/// bytes have arrived, because many connections may be waiting for a request or a response.
pub(super) fn poll_receive(
    stream: &mut Stream,
    received: &mut Buffer,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    // The usual case, without a copy.
    if let Some(plain) = (**stream).as_any().downcast_ref::<PlainStream>()
        && !plain.has_rewound()
    {
        return plain.poll_extend(received, cx);
    }
    if received.capacity() > 0 {
        // Makes room by itself.
        return pin!(stream.read_buf(&mut **received)).poll(cx);
    }
    let mut bytes = [const { MaybeUninit::uninit() }; CAPACITY];
    let mut buffer = ReadBuf::uninit(&mut bytes);
    ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
    received.extend(buffer.filled());
    Poll::Ready(Ok(buffer.filled().len()))
}
