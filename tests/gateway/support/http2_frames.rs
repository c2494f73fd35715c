//! A raw HTTP/2 connection (RFC 9113): sends arbitrary frames in any order.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Gateway, ServerAddress, Stream, TEST_TIMEOUT, within};

/// The client connection preface.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Flag END_STREAM of DATA and HEADERS.
pub const END_STREAM: u8 = 0x1;
/// Flag END_HEADERS.
pub const END_HEADERS: u8 = 0x4;

/// The frame types that tests use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    Data,
    Headers,
    RstStream,
    Settings,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    Other(u8),
}

impl FrameKind {
    fn number(self) -> u8 {
        match self {
            FrameKind::Data => 0,
            FrameKind::Headers => 1,
            FrameKind::RstStream => 3,
            FrameKind::Settings => 4,
            FrameKind::Ping => 6,
            FrameKind::GoAway => 7,
            FrameKind::WindowUpdate => 8,
            FrameKind::Continuation => 9,
            FrameKind::Other(number) => number,
        }
    }

    fn of(number: u8) -> FrameKind {
        match number {
            0 => FrameKind::Data,
            1 => FrameKind::Headers,
            3 => FrameKind::RstStream,
            4 => FrameKind::Settings,
            6 => FrameKind::Ping,
            7 => FrameKind::GoAway,
            8 => FrameKind::WindowUpdate,
            9 => FrameKind::Continuation,
            other => FrameKind::Other(other),
        }
    }
}

/// An HTTP/2 frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http2Frame {
    pub kind: FrameKind,
    pub flags: u8,
    /// The stream id; 0 is the connection.
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Http2Frame {
    pub fn new(kind: FrameKind, flags: u8, stream: u32, payload: &[u8]) -> Http2Frame {
        Http2Frame { kind, flags, stream, payload: payload.to_vec() }
    }

    /// HEADERS of a request without a body.
    pub fn request(stream: u32, block: &HeaderBlock) -> Http2Frame {
        Http2Frame::new(FrameKind::Headers, END_HEADERS | END_STREAM, stream, &block.bytes)
    }

    /// HEADERS of a request whose body follows.
    pub fn head(stream: u32, block: &HeaderBlock) -> Http2Frame {
        Http2Frame::new(FrameKind::Headers, END_HEADERS, stream, &block.bytes)
    }

    /// DATA with END_STREAM.
    pub fn last_data(stream: u32, body: &[u8]) -> Http2Frame {
        Http2Frame::new(FrameKind::Data, END_STREAM, stream, body)
    }

    /// RST_STREAM with the error code CANCEL.
    pub fn rst_stream_cancel(stream: u32) -> Http2Frame {
        Http2Frame::new(FrameKind::RstStream, 0, stream, &8u32.to_be_bytes())
    }

    /// The encoded frame.
    pub fn bytes(&self) -> Vec<u8> {
        let length = u32::try_from(self.payload.len()).expect("a short frame").to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], self.kind.number(), self.flags];
        bytes.extend_from_slice(&self.stream.to_be_bytes());
        bytes.extend_from_slice(&self.payload);
        bytes
    }
}

/// A header block (RFC 7541) of literal fields, without compression or validation.
#[derive(Debug, Clone, Default)]
pub struct HeaderBlock {
    /// The encoded block.
    pub bytes: Vec<u8>,
}

impl HeaderBlock {
    /// The block of a plain GET.
    pub fn get(desk: &Gateway, target: &str) -> HeaderBlock {
        HeaderBlock::of(desk, "GET", target)
    }

    /// The block of any request.
    pub fn of(desk: &Gateway, method: &str, target: &str) -> HeaderBlock {
        HeaderBlock::default()
            .field(":method", method)
            .field(":scheme", "https")
            .field(":authority", &desk.address().to_string())
            .field(":path", target)
    }

    /// Adds a literal field without indexing.
    pub fn field(mut self, name: &str, value: &str) -> HeaderBlock {
        self.bytes.push(0x00);
        self.text(name);
        self.text(value);
        self
    }

    /// Adds a literal field with incremental indexing.
    pub fn indexed_field(mut self, name: &str, value: &str) -> HeaderBlock {
        self.bytes.push(0x40);
        self.text(name);
        self.text(value);
        self
    }

    /// Adds the newest indexed field `count` times, one byte each.
    pub fn repeat_newest(mut self, count: usize) -> HeaderBlock {
        const NEWEST: u8 = 0x80 | 62;
        self.bytes.resize(self.bytes.len() + count, NEWEST);
        self
    }

    fn text(&mut self, text: &str) {
        // An integer with a seven-bit prefix; the eighth bit is 0: no Huffman coding.
        match text.len() {
            short @ 0..127 => self.bytes.push(short as u8),
            long => {
                self.bytes.push(127);
                let mut rest = long - 127;
                while rest >= 128 {
                    self.bytes.push((rest % 128) as u8 | 0x80);
                    rest /= 128;
                }
                self.bytes.push(rest as u8);
            }
        }
        self.bytes.extend_from_slice(text.as_bytes());
    }
}

/// The peer's reaction to a request or to the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerReaction {
    /// Response HEADERS arrived.
    Responded,
    /// RST_STREAM with this error code.
    Reset(u32),
    /// GOAWAY with this error code.
    GoAway(u32),
    /// The connection ended without GOAWAY.
    Disconnected,
}

/// A connection that sends and reads single frames.
pub struct Http2Connection {
    stream: Stream,
    unread: Vec<u8>,
}

impl Http2Connection {
    /// Negotiates HTTP/2 by ALPN and sends nothing.
    pub async fn connect_without_preface(desk: &Gateway) -> Http2Connection {
        let server = desk.server_address();
        let client_tls = server.client_tls.as_ref().expect("a server that speaks TLS").with_alpn(&[b"h2"]);
        let server_with_h2 = ServerAddress { client_tls: Some(client_tls), ..server };
        let stream =
            within(TEST_TIMEOUT, "a connection", Stream::connect(&server_with_h2)).await.expect("a connection");
        assert_eq!(stream.protocol().as_deref(), Some(&b"h2"[..]), "the negotiated protocol");
        Http2Connection { stream, unread: Vec::new() }
    }

    /// Negotiates HTTP/2 and sends the preface with empty SETTINGS.
    pub async fn open(desk: &Gateway) -> Http2Connection {
        let mut frames = Http2Connection::connect_without_preface(desk).await;
        let mut bytes = PREFACE.to_vec();
        bytes.extend(Http2Frame::new(FrameKind::Settings, 0, 0, b"").bytes());
        frames.send_bytes(&bytes).await;
        frames
    }

    /// Sends a frame. A closed connection is no error here.
    pub async fn send(&mut self, frame: &Http2Frame) {
        self.send_bytes(&frame.bytes()).await;
    }

    /// Sends several frames in one write.
    pub async fn send_all(&mut self, frames: &[Http2Frame]) {
        let bytes: Vec<u8> = frames.iter().flat_map(Http2Frame::bytes).collect();
        self.send_bytes(&bytes).await;
    }

    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        let sending = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        let _ = within(TEST_TIMEOUT, "sending", sending).await;
    }

    /// Sends the bytes up to `times` times, until the peer closes the connection or stops reading for `blocked_after`.
    /// Returns the number of complete sends.
    pub async fn flood(&mut self, bytes: &[u8], times: usize, blocked_after: Duration) -> usize {
        for time in 0..times {
            let sending = async {
                self.stream.write_all(bytes).await?;
                self.stream.flush().await
            };
            match tokio::time::timeout(blocked_after, sending).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return time,
            }
        }
        times
    }

    /// Reads the next frame; `None` at the end of the connection.
    pub async fn next(&mut self) -> Option<Http2Frame> {
        loop {
            if let Some(frame) = self.parse_frame() {
                return Some(frame);
            }
            if !self.read_more().await {
                return None;
            }
        }
    }

    /// Waits for the peer's reaction to this stream.
    pub async fn reaction(&mut self, stream: u32) -> PeerReaction {
        while let Some(frame) = self.next().await {
            let number = |at: usize| frame.payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            match frame.kind {
                FrameKind::GoAway => {
                    return PeerReaction::GoAway(u32::from_be_bytes(number(4).expect("an error code")));
                }
                FrameKind::RstStream if frame.stream == stream => {
                    return PeerReaction::Reset(u32::from_be_bytes(number(0).expect("an error code")));
                }
                FrameKind::Headers if frame.stream == stream => return PeerReaction::Responded,
                _ => {}
            }
        }
        PeerReaction::Disconnected
    }

    /// Waits for the end of the connection and ignores all streams.
    pub async fn connection_end(&mut self) -> PeerReaction {
        // No stream has this id.
        self.reaction(u32::MAX).await
    }

    /// Whether the peer closes the connection within this time.
    pub async fn ends_within(&mut self, limit: Duration) -> bool {
        tokio::time::timeout(limit, async { while self.read_more().await {} }).await.is_ok()
    }

    fn parse_frame(&mut self) -> Option<Http2Frame> {
        let head: [u8; 9] = self.unread.get(..9)?.try_into().ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let payload = self.unread.get(9..9 + length)?.to_vec();
        self.unread.drain(..9 + length);
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        Some(Http2Frame { kind: FrameKind::of(head[3]), flags: head[4], stream, payload })
    }

    async fn read_more(&mut self) -> bool {
        let mut piece = vec![0; 64 * 1024];
        match within(TEST_TIMEOUT, "a frame or the end", self.stream.read(&mut piece)).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.unread.extend_from_slice(&piece[..count]);
                true
            }
        }
    }
}
