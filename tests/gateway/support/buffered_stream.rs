//! A byte stream with its unread bytes: the client's or the upstream's side of a connection through the gateway.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::connection::find_bytes;
use super::{Connection, Frame, Gateway, Handshake, Response, Stream, TEST_TIMEOUT, within};

/// A write without progress for this long counts as blocked: the peer does not read.
pub(super) const BLOCKED_AFTER: Duration = Duration::from_millis(700);

/// A stream and the bytes that were received but not read yet.
pub struct BufferedStream {
    stream: Stream,
    unread: Vec<u8>,
}

impl BufferedStream {
    /// Wraps a stream.
    pub fn new(stream: impl Into<Stream>, unread: Vec<u8>) -> BufferedStream {
        BufferedStream { stream: stream.into(), unread }
    }

    /// Wraps a connection, with the bytes behind its last response.
    pub fn from_connection(connection: Connection) -> BufferedStream {
        let (stream, unread) = connection.into_parts();
        BufferedStream { stream, unread }
    }

    /// Opens a WebSocket as a client and returns the 101 and the raw stream; panics on any other status.
    pub async fn open_tunnel(desk: &Gateway, handshake: &Handshake) -> (Response, BufferedStream) {
        let mut connection = desk.connect().await;
        connection.send(&handshake.bytes()).await;
        let response = connection.response().await.expect("an answer to the handshake");
        assert_eq!(response.status, 101, "{}", response.describe());
        (response, BufferedStream::from_connection(connection))
    }

    /// Sends bytes; panics if the peer has closed the stream.
    pub async fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).await.expect("an open stream");
    }

    /// Waits until what was sent has been delivered to the peer's socket.
    pub async fn until_delivered(&self) {
        self.stream.until_delivered().await;
    }

    /// Sends bytes to a peer that may have closed the stream.
    pub async fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let sending = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        within(TEST_TIMEOUT, "sending", sending).await
    }

    /// Sends until the peer stops reading; returns the number of bytes sent. Panics at `most` bytes.
    pub async fn send_until_blocked(&mut self, bytes: &[u8], most: usize) -> usize {
        let mut sent = 0;
        while sent < most {
            let rest = &bytes[sent % bytes.len()..];
            match tokio::time::timeout(BLOCKED_AFTER, self.stream.write(rest)).await {
                Ok(count) => sent += count.expect("an open stream"),
                Err(_) => return sent,
            }
        }
        panic!("{most} bytes were sent to a peer that does not read");
    }

    /// Reads this many bytes.
    pub async fn read_exactly(&mut self, count: usize) -> Vec<u8> {
        while self.unread.len() < count {
            let had = self.unread.len();
            assert!(self.read_more().await, "the stream ended after {had} of {count} bytes");
        }
        self.unread.drain(..count).collect()
    }

    /// Reads up to and including these bytes.
    pub async fn read_until(&mut self, wanted: &[u8]) -> Vec<u8> {
        loop {
            if let Some(position) = find_bytes(&self.unread, wanted) {
                return self.unread.drain(..position + wanted.len()).collect();
            }
            assert!(
                self.read_more().await,
                "the stream ended before `{}`: {}",
                String::from_utf8_lossy(wanted),
                String::from_utf8_lossy(&self.unread)
            );
        }
    }

    /// Reads a WebSocket frame; `None` at the end of the stream. Panics on a partial frame.
    pub async fn read_frame(&mut self) -> Option<Frame> {
        loop {
            if let Some((frame, length)) = Frame::parse(&self.unread) {
                self.unread.drain(..length);
                return Some(frame);
            }
            if !self.read_more().await {
                assert!(self.unread.is_empty(), "the stream ended in the middle of a frame");
                return None;
            }
        }
    }

    /// Reads to the end of the stream; panics if it does not end within this time.
    pub async fn read_to_end_within(&mut self, limit: Duration) -> Vec<u8> {
        within(limit, "the end of the stream", async { while self.read_more().await {} }).await;
        std::mem::take(&mut self.unread)
    }

    /// Reads to the end of the stream, or until it has been idle for this long.
    pub async fn read_until_idle(&mut self, time: Duration) -> Vec<u8> {
        while let Ok(true) = tokio::time::timeout(time, self.read_more()).await {}
        std::mem::take(&mut self.unread)
    }

    /// Whether the stream stays open and idle for this long.
    pub async fn is_silent_for(&mut self, time: Duration) -> bool {
        self.unread.is_empty() && tokio::time::timeout(time, self.read_more()).await.is_err()
    }

    /// Resets the connection (TCP RST).
    pub fn reset(self) {
        self.stream.socket().set_zero_linger().expect("a socket option");
    }

    /// The stream and its unread bytes.
    pub fn into_parts(self) -> (Stream, Vec<u8>) {
        (self.stream, self.unread)
    }

    /// Reads once; `false` at the end of the stream or on an error.
    async fn read_more(&mut self) -> bool {
        let mut piece = vec![0; 64 * 1024];
        match within(TEST_TIMEOUT, "a byte or the end", self.stream.read(&mut piece)).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.unread.extend_from_slice(&piece[..count]);
                true
            }
        }
    }
}

/// Bytes that differ by position, so that lost, repeated or reordered pieces show.
pub fn byte_pattern(length: usize) -> Vec<u8> {
    (0..length).map(|position| ((position / 253) ^ (position * 7)) as u8).collect()
}
