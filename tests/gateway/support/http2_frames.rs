//! HTTP/2 by hand (RFC 9113): frames that no proper client would send, in any order.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Gateway, PATIENCE, Place, Stream, within};

/// What a client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The end of a body or of a request without one.
pub const END_STREAM: u8 = 0x1;
/// The end of a header block.
pub const END_HEADERS: u8 = 0x4;

/// The kinds of frames that tests look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A piece of a body.
    Data,
    /// A header block, or its beginning.
    Headers,
    /// The end of a stream, with its reason.
    RstStream,
    /// Settings, or their acknowledgement.
    Settings,
    /// A ping, or its answer.
    Ping,
    /// The end of the connection, with its reason.
    GoAway,
    /// More room for bodies.
    WindowUpdate,
    /// More of a header block.
    Continuation,
    /// Anything else.
    Other(u8),
}

impl Kind {
    fn number(self) -> u8 {
        match self {
            Kind::Data => 0,
            Kind::Headers => 1,
            Kind::RstStream => 3,
            Kind::Settings => 4,
            Kind::Ping => 6,
            Kind::GoAway => 7,
            Kind::WindowUpdate => 8,
            Kind::Continuation => 9,
            Kind::Other(number) => number,
        }
    }

    fn of(number: u8) -> Kind {
        match number {
            0 => Kind::Data,
            1 => Kind::Headers,
            3 => Kind::RstStream,
            4 => Kind::Settings,
            6 => Kind::Ping,
            7 => Kind::GoAway,
            8 => Kind::WindowUpdate,
            9 => Kind::Continuation,
            other => Kind::Other(other),
        }
    }
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http2Frame {
    /// What it is.
    pub kind: Kind,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 is the connection.
    pub stream: u32,
    /// What it carries.
    pub payload: Vec<u8>,
}

impl Http2Frame {
    /// Any frame.
    pub fn new(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Http2Frame {
        Http2Frame { kind, flags, stream, payload: payload.to_vec() }
    }

    /// The whole head of a request without a body.
    pub fn request(stream: u32, block: &Block) -> Http2Frame {
        Http2Frame::new(Kind::Headers, END_HEADERS | END_STREAM, stream, &block.bytes)
    }

    /// The whole head of a request whose body follows.
    pub fn head(stream: u32, block: &Block) -> Http2Frame {
        Http2Frame::new(Kind::Headers, END_HEADERS, stream, &block.bytes)
    }

    /// The last piece of a body.
    pub fn last_data(stream: u32, body: &[u8]) -> Http2Frame {
        Http2Frame::new(Kind::Data, END_STREAM, stream, body)
    }

    /// The client's change of mind (CANCEL).
    pub fn cancel(stream: u32) -> Http2Frame {
        Http2Frame::new(Kind::RstStream, 0, stream, &8u32.to_be_bytes())
    }

    /// The frame on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let length = u32::try_from(self.payload.len()).expect("a short frame").to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], self.kind.number(), self.flags];
        bytes.extend_from_slice(&self.stream.to_be_bytes());
        bytes.extend_from_slice(&self.payload);
        bytes
    }
}

/// A header block (RFC 7541) of literal fields: nothing is compressed, nothing is checked.
#[derive(Debug, Clone, Default)]
pub struct Block {
    /// The block on the wire.
    pub bytes: Vec<u8>,
}

impl Block {
    /// The block of a GET without anything special.
    pub fn get(desk: &Gateway, target: &str) -> Block {
        Block::of(desk, "GET", target)
    }

    /// The block of any request.
    pub fn of(desk: &Gateway, method: &str, target: &str) -> Block {
        Block::default()
            .field(":method", method)
            .field(":scheme", "https")
            .field(":authority", &desk.address().to_string())
            .field(":path", target)
    }

    /// Adds a field.
    pub fn field(mut self, name: &str, value: &str) -> Block {
        self.bytes.push(0x00);
        self.text(name);
        self.text(value);
        self
    }

    /// Adds a field that the other side remembers as its newest.
    pub fn remembered(mut self, name: &str, value: &str) -> Block {
        self.bytes.push(0x40);
        self.text(name);
        self.text(value);
        self
    }

    /// Adds the newest remembered field this often, at one byte each.
    pub fn repeated(mut self, count: usize) -> Block {
        const NEWEST: u8 = 0x80 | 62;
        self.bytes.resize(self.bytes.len() + count, NEWEST);
        self
    }

    fn text(&mut self, text: &str) {
        // An integer with a prefix of seven bits; the eighth says that the text is not compressed.
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

/// How a connection or a stream took what it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// An answer has begun.
    Answered,
    /// The stream was reset, for this reason.
    Reset(u32),
    /// The connection ends, for this reason.
    GoneAway(u32),
    /// The connection was cut.
    Cut,
}

/// A connection that speaks HTTP/2, frame by frame.
pub struct Frames {
    stream: Stream,
    unread: Vec<u8>,
}

impl Frames {
    /// Agrees on HTTP/2 and says nothing yet.
    pub async fn silent(desk: &Gateway) -> Frames {
        let place = desk.place();
        let trust = place.trust.as_ref().expect("a server that speaks TLS").offering(&[b"h2"]);
        let secure = Place { trust: Some(trust), ..place };
        let stream = within(PATIENCE, "a connection", Stream::connect(&secure)).await.expect("a connection");
        assert_eq!(stream.protocol().as_deref(), Some(&b"h2"[..]), "the protocol agreed on");
        Frames { stream, unread: Vec::new() }
    }

    /// Agrees on HTTP/2, sends the preface and empty settings.
    pub async fn open(desk: &Gateway) -> Frames {
        let mut frames = Frames::silent(desk).await;
        let mut bytes = PREFACE.to_vec();
        bytes.extend(Http2Frame::new(Kind::Settings, 0, 0, b"").bytes());
        frames.send_bytes(&bytes).await;
        frames
    }

    /// Sends a frame; a peer that has gone is no failure here.
    pub async fn send(&mut self, frame: &Http2Frame) {
        self.send_bytes(&frame.bytes()).await;
    }

    /// Sends several frames in one write.
    pub async fn send_all(&mut self, frames: &[Http2Frame]) {
        let bytes: Vec<u8> = frames.iter().flat_map(Http2Frame::bytes).collect();
        self.send_bytes(&bytes).await;
    }

    /// Sends any bytes.
    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        let sending = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        let _ = within(PATIENCE, "sending", sending).await;
    }

    /// Sends these bytes again and again, as often as asked, until the peer ends the connection or takes no more
    /// for this long: how many times all of them went out.
    pub async fn flood(&mut self, bytes: &[u8], times: usize, stuck: Duration) -> usize {
        for time in 0..times {
            let sending = async {
                self.stream.write_all(bytes).await?;
                self.stream.flush().await
            };
            match tokio::time::timeout(stuck, sending).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return time,
            }
        }
        times
    }

    /// The next frame; `None` at the end of the connection.
    pub async fn next(&mut self) -> Option<Http2Frame> {
        loop {
            if let Some(frame) = self.whole() {
                return Some(frame);
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// What becomes of this stream.
    pub async fn verdict(&mut self, stream: u32) -> Verdict {
        while let Some(frame) = self.next().await {
            let number = |at: usize| frame.payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            match frame.kind {
                Kind::GoAway => return Verdict::GoneAway(u32::from_be_bytes(number(4).expect("a reason"))),
                Kind::RstStream if frame.stream == stream => {
                    return Verdict::Reset(u32::from_be_bytes(number(0).expect("a reason")));
                }
                Kind::Headers if frame.stream == stream => return Verdict::Answered,
                _ => {}
            }
        }
        Verdict::Cut
    }

    /// How the whole connection ends; whatever else comes is passed over.
    pub async fn ending(&mut self) -> Verdict {
        // No stream has this number.
        self.verdict(u32::MAX).await
    }

    /// Whether the peer ends the connection within this time, whatever it says before.
    pub async fn ends_within(&mut self, limit: Duration) -> bool {
        tokio::time::timeout(limit, async { while self.more().await {} }).await.is_ok()
    }

    fn whole(&mut self) -> Option<Http2Frame> {
        let head: [u8; 9] = self.unread.get(..9)?.try_into().ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let payload = self.unread.get(9..9 + length)?.to_vec();
        self.unread.drain(..9 + length);
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        Some(Http2Frame { kind: Kind::of(head[3]), flags: head[4], stream, payload })
    }

    async fn more(&mut self) -> bool {
        let mut piece = vec![0; 64 * 1024];
        match within(PATIENCE, "a frame or the end", self.stream.read(&mut piece)).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.unread.extend_from_slice(&piece[..count]);
                true
            }
        }
    }
}
