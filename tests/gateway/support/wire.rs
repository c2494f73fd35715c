//! HTTP/1.1 by hand: what is written is what is sent, what is sent back is seen whole.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Answer, PATIENCE, within};

/// One TCP connection to a server, with what has come over it and was not looked at yet.
pub struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
    asked: String,
}

/// The end of a head.
const BLANK_LINE: &[u8] = b"\r\n\r\n";

impl Connection {
    /// Connects.
    pub async fn open(address: SocketAddr) -> Connection {
        let stream = within(PATIENCE, "a connection", TcpStream::connect(address)).await;
        let stream = stream.unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"));
        stream.set_nodelay(true).expect("nodelay");
        Connection { stream, unread: Vec::new(), asked: String::new() }
    }

    /// Sends these bytes. A peer that has already gone is no failure here: its answer tells.
    pub async fn send(&mut self, bytes: &[u8]) {
        let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
        self.asked = String::from_utf8_lossy(line).chars().take(200).collect();
        let _ = within(PATIENCE, "sending", self.stream.write_all(bytes)).await;
    }

    /// The next answer; `None` when the peer has closed the connection instead.
    pub async fn answer(&mut self) -> Option<Answer> {
        self.answer_with(BodyRule::ByHead).await
    }

    /// The next answer to a HEAD request: it has no body, whatever its head says.
    pub async fn answer_to_head(&mut self) -> Option<Answer> {
        self.answer_with(BodyRule::None).await
    }

    async fn answer_with(&mut self, rule: BodyRule) -> Option<Answer> {
        let (head, asked) = (self.head().await?, self.asked.clone());
        let (status, headers) = parse_head(&head);
        let mut answer = Answer { asked, status, headers, body: Vec::new() };
        if rule == BodyRule::None || matches!(status, 100..=199 | 204 | 304) {
            return Some(answer);
        }
        let chunked = answer.header_all("transfer-encoding").iter().any(|v| v.eq_ignore_ascii_case("chunked"));
        answer.body = if chunked {
            self.chunks().await
        } else if let Some(length) = answer.header("content-length") {
            let length = length.parse().expect("a length in digits");
            self.exactly(length).await
        } else {
            self.until_end().await
        };
        Some(answer)
    }

    /// The next head with its blank line; `None` when the connection ends before it begins.
    pub async fn head(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(place) = find(&self.unread, BLANK_LINE) {
                return Some(self.unread.drain(..place + BLANK_LINE.len()).collect());
            }
            if !self.more().await {
                assert!(
                    self.unread.is_empty(),
                    "the connection ended inside a head: {}",
                    String::from_utf8_lossy(&self.unread)
                );
                return None;
            }
        }
    }

    /// This many bytes; fails when the connection ends before.
    pub async fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.unread.len() < length {
            assert!(self.more().await, "the connection ended {} bytes short", length - self.unread.len());
        }
        self.unread.drain(..length).collect()
    }

    /// Everything up to the end of the connection.
    pub async fn until_end(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.unread)
    }

    /// Whether the peer closes the connection, without another byte, within this time.
    pub async fn closes_within(&mut self, limit: Duration) -> bool {
        matches!(tokio::time::timeout(limit, self.more()).await, Ok(false))
    }

    /// The stream and what was read beyond the last answer.
    pub fn into_parts(self) -> (TcpStream, Vec<u8>) {
        (self.stream, self.unread)
    }

    async fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).expect("a chunk size");
            if size == 0 {
                while !self.line().await.is_empty() {}
                return body;
            }
            body.extend(self.exactly(size).await);
            assert_eq!(self.exactly(2).await, b"\r\n", "the end of a chunk");
        }
    }

    async fn line(&mut self) -> String {
        loop {
            if let Some(place) = find(&self.unread, b"\r\n") {
                let line: Vec<u8> = self.unread.drain(..place + 2).collect();
                return String::from_utf8_lossy(&line[..place]).into_owned();
            }
            assert!(self.more().await, "the connection ended inside a chunk");
        }
    }

    /// Reads what there is; `false` at the end of the connection, however it ended.
    async fn more(&mut self) -> bool {
        let mut piece = [0; 16 * 1024];
        match within(PATIENCE, "an answer", self.stream.read(&mut piece)).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.unread.extend_from_slice(&piece[..count]);
                true
            }
        }
    }
}

/// Where the length of an answer's body is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyRule {
    ByHead,
    None,
}

/// Where `wanted` begins.
pub fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Status and header lines of an answer's head.
fn parse_head(head: &[u8]) -> (u16, Vec<(String, String)>) {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.trim_end().split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no HTTP answer: {text}"));
    (status, header_lines(lines))
}

/// Header lines as name and value.
pub fn header_lines<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<(String, String)> {
    lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            (name.to_owned(), value.trim().to_owned())
        })
        .collect()
}
