//! Both ends of a connection through the gateway, byte by byte: the test itself is the client, the upstream or both.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::wire::find;
use super::{Answer, Behaviour, Connection, Frame, Gateway, Handshake, PATIENCE, Recorded, Upstream, within};

/// A write that makes no progress for this long is stuck: the other side does not read.
const STUCK: Duration = Duration::from_millis(700);

/// One end of a stream, with what has come over it and was not looked at yet.
pub struct End {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl End {
    /// Takes over a stream.
    pub fn new(stream: TcpStream, unread: Vec<u8>) -> End {
        End { stream, unread }
    }

    /// Takes over a connection, with what was read beyond its last answer.
    pub fn of(connection: Connection) -> End {
        let (stream, unread) = connection.into_parts();
        End { stream, unread }
    }

    /// Opens a tunnel as a client: the 101 and the bytes behind it; fails when it is refused.
    pub async fn through(desk: &Gateway, handshake: &Handshake) -> (Answer, End) {
        let mut connection = desk.connect().await;
        connection.send(&handshake.bytes()).await;
        let answer = connection.answer().await.expect("an answer to the handshake");
        assert_eq!(answer.status, 101, "{}", answer.describe());
        (answer, End::of(connection))
    }

    /// Sends these bytes; fails when the other side has gone.
    pub async fn send(&mut self, bytes: &[u8]) {
        within(PATIENCE, "sending", self.stream.write_all(bytes)).await.expect("an open stream");
    }

    /// Sends these bytes to somebody who may have gone.
    pub async fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        within(PATIENCE, "sending", self.stream.write_all(bytes)).await
    }

    /// Sends pieces until the other side takes no more: how many bytes it took. Fails when it took `most`.
    pub async fn send_until_stuck(&mut self, bytes: &[u8], most: usize) -> usize {
        let mut sent = 0;
        while sent < most {
            let rest = &bytes[sent % bytes.len()..];
            match tokio::time::timeout(STUCK, self.stream.write(rest)).await {
                Ok(count) => sent += count.expect("an open stream"),
                Err(_) => return sent,
            }
        }
        panic!("{most} bytes were taken although nobody reads them");
    }

    /// This many bytes.
    pub async fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.unread.len() < count {
            let had = self.unread.len();
            assert!(self.more().await, "the stream ended after {had} of {count} bytes");
        }
        self.unread.drain(..count).collect()
    }

    /// Everything up to and with these bytes.
    pub async fn until(&mut self, wanted: &[u8]) -> Vec<u8> {
        loop {
            if let Some(place) = find(&self.unread, wanted) {
                return self.unread.drain(..place + wanted.len()).collect();
            }
            assert!(
                self.more().await,
                "the stream ended before `{}`: {}",
                String::from_utf8_lossy(wanted),
                String::from_utf8_lossy(&self.unread)
            );
        }
    }

    /// The next WebSocket frame; `None` when the stream ends before it begins. Fails on half a frame.
    pub async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some((frame, length)) = Frame::parse(&self.unread) {
                self.unread.drain(..length);
                return Some(frame);
            }
            if !self.more().await {
                assert!(self.unread.is_empty(), "the stream ended inside a frame");
                return None;
            }
        }
    }

    /// Everything that still comes, up to the end of the stream, which must come within this time.
    pub async fn rest_within(&mut self, limit: Duration) -> Vec<u8> {
        within(limit, "the end of the stream", async { while self.more().await {} }).await;
        std::mem::take(&mut self.unread)
    }

    /// Everything that comes until the end of the stream, or until nothing more comes for this long.
    pub async fn rest_or_silence(&mut self, time: Duration) -> Vec<u8> {
        while let Ok(true) = tokio::time::timeout(time, self.more()).await {}
        std::mem::take(&mut self.unread)
    }

    /// Whether nothing at all comes for this long, not even the end.
    pub async fn is_silent_for(&mut self, time: Duration) -> bool {
        self.unread.is_empty() && tokio::time::timeout(time, self.more()).await.is_err()
    }

    /// Ends the connection without a farewell (RST).
    pub fn reset(self) {
        self.stream.set_zero_linger().expect("a socket option");
    }

    /// The socket beneath, and what is unread.
    pub fn into_parts(self) -> (TcpStream, Vec<u8>) {
        (self.stream, self.unread)
    }

    /// Reads what there is; `false` at the end of the stream, however it ended.
    async fn more(&mut self) -> bool {
        let mut piece = vec![0; 64 * 1024];
        match within(PATIENCE, "a byte or the end", self.stream.read(&mut piece)).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.unread.extend_from_slice(&piece[..count]);
                true
            }
        }
    }
}

/// One connection that came to the upstream, its first request's head already read.
pub struct Visit {
    /// What was asked, without its body.
    pub request: Recorded,
    /// The stream behind the head.
    pub end: End,
}

impl Visit {
    /// Accepts the handshake; these bytes follow the 101 in the same write.
    pub async fn accept(&mut self, behind: &[u8]) {
        self.accept_with("", behind).await;
    }

    /// Accepts the handshake with further header lines, each with its line end.
    pub async fn accept_with(&mut self, lines: &str, behind: &[u8]) {
        let key = self.request.header("sec-websocket-key").expect("a handshake");
        let mut bytes = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: {}\r\n{lines}\r\n",
            derive_accept_key(key.as_bytes())
        )
        .into_bytes();
        bytes.extend_from_slice(behind);
        self.end.send(&bytes).await;
    }
}

/// Hands every connection of the upstream to the test, once its first request's head is there.
pub struct Visits {
    arriving: mpsc::UnboundedReceiver<Visit>,
}

impl Visits {
    /// Takes the upstream's place.
    pub fn at(upstream: &Upstream) -> Visits {
        let (arrive, arriving) = mpsc::unbounded_channel();
        upstream.behave(Behaviour::Script(Arc::new(move |request, stream, unread| {
            // A test that has ended wants no more visits.
            let _ = arrive.send(Visit { request, end: End::new(stream, unread) });
            Box::pin(async {})
        })));
        Visits { arriving }
    }

    /// The next one.
    pub async fn next(&mut self) -> Visit {
        within(PATIENCE, "a connection to the upstream", self.arriving.recv()).await.expect("an upstream")
    }

    /// Whether nobody comes for this long.
    pub async fn is_quiet_for(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.arriving.recv()).await.is_err()
    }
}
