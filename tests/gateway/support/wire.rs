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
        match Connection::try_open(address).await {
            Ok(connection) => connection,
            Err(error) => panic!("cannot connect to {address}: {error}"),
        }
    }

    /// Connects, or says why that failed.
    pub async fn try_open(address: SocketAddr) -> std::io::Result<Connection> {
        let stream = within(PATIENCE, "a connection", TcpStream::connect(address)).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, unread: Vec::new(), asked: String::new() })
    }

    /// Sends these bytes. A peer that has already gone is no failure here: its answer tells.
    pub async fn send(&mut self, bytes: &[u8]) {
        let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
        self.asked = String::from_utf8_lossy(line).chars().take(200).collect();
        let _ = within(PATIENCE, "sending", self.stream.write_all(bytes)).await;
    }

    /// The next answer; `None` when the peer has closed the connection instead.
    pub async fn answer(&mut self) -> Option<Answer> {
        self.whole_answer(BodyRule::ByHead).await
    }

    /// The next answer to a HEAD request: it has no body, whatever its head says.
    pub async fn answer_to_head(&mut self) -> Option<Answer> {
        self.whole_answer(BodyRule::None).await
    }

    async fn whole_answer(&mut self, rule: BodyRule) -> Option<Answer> {
        match self.try_answer(rule).await {
            Ok(answer) => answer,
            Err(Broken(why)) => panic!("{why} in the answer to `{}`", self.asked),
        }
    }

    /// The next answer, `None` at the end of the connection, or what is wrong with it.
    pub async fn try_answer(&mut self, rule: BodyRule) -> Result<Option<Answer>, Broken> {
        let Some(head) = self.head().await? else { return Ok(None) };
        let (status, headers) = parse_head(&head)?;
        let mut answer = Answer { asked: self.asked.clone(), status, headers, body: Vec::new() };
        if rule == BodyRule::None || matches!(status, 100..=199 | 204 | 304) {
            return Ok(Some(answer));
        }
        let chunked = answer.header_all("transfer-encoding").iter().any(|v| v.eq_ignore_ascii_case("chunked"));
        let length = answer.header_all("content-length").first().map(|length| length.parse());
        answer.body = match length {
            _ if chunked => self.chunks().await?,
            Some(Ok(length)) => self.exactly(length).await?,
            Some(Err(_)) => return Err(Broken(format!("a length that is none: {}", answer.describe()))),
            None => self.until_end().await,
        };
        Ok(Some(answer))
    }

    /// The next head with its blank line; `None` when the connection ends before it begins.
    async fn head(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        loop {
            if let Some(place) = find(&self.unread, BLANK_LINE) {
                return Ok(Some(self.unread.drain(..place + BLANK_LINE.len()).collect()));
            }
            if !self.more().await {
                return match self.unread.is_empty() {
                    true => Ok(None),
                    false => Err(Broken(format!("an early end: {}", String::from_utf8_lossy(&self.unread)))),
                };
            }
        }
    }

    /// This many bytes.
    async fn exactly(&mut self, length: usize) -> Result<Vec<u8>, Broken> {
        while self.unread.len() < length {
            if !self.more().await {
                return Err(Broken(format!("an end {} bytes early", length - self.unread.len())));
            }
        }
        Ok(self.unread.drain(..length).collect())
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

    async fn chunks(&mut self) -> Result<Vec<u8>, Broken> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| Broken(format!("the chunk size `{line}`")))?;
            if size == 0 {
                while !self.line().await?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.exactly(size).await?);
            if self.exactly(2).await? != b"\r\n" {
                return Err(Broken("a chunk without end".to_owned()));
            }
        }
    }

    async fn line(&mut self) -> Result<String, Broken> {
        loop {
            if let Some(place) = find(&self.unread, b"\r\n") {
                let line: Vec<u8> = self.unread.drain(..place + 2).collect();
                return Ok(String::from_utf8_lossy(&line[..place]).into_owned());
            }
            if !self.more().await {
                return Err(Broken("an end inside a chunk".to_owned()));
            }
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyRule {
    /// In its head.
    ByHead,
    /// Nowhere: there is no body.
    None,
}

/// An answer that is not whole, and why.
#[derive(Debug)]
pub struct Broken(pub String);

/// Where `wanted` begins.
pub fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Status and header lines of an answer's head.
fn parse_head(head: &[u8]) -> Result<(u16, Vec<(String, String)>), Broken> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.trim_end().split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| Broken(format!("no HTTP: {text}")))?;
    Ok((status, header_lines(lines)))
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
