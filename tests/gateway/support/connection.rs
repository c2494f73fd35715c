//! A raw HTTP/1.1 connection: sends arbitrary bytes and reads complete responses.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Gateway, Response, ServerAddress, Stream, TEST_TIMEOUT, within};

/// A connection to a server and the bytes that were received but not read yet.
pub struct Connection {
    stream: Stream,
    unread: Vec<u8>,
    request_line: String,
}

/// The end of a message head.
const BLANK_LINE: &[u8] = b"\r\n\r\n";

impl Connection {
    /// Connects; panics on failure.
    pub async fn open(server: impl Into<ServerAddress>) -> Connection {
        let server = server.into();
        match Connection::try_open(server.clone()).await {
            Ok(connection) => connection,
            Err(error) => panic!("cannot connect to {}: {error}", server.address),
        }
    }

    pub async fn try_open(server: impl Into<ServerAddress>) -> std::io::Result<Connection> {
        let stream = within(TEST_TIMEOUT, "a connection", Stream::connect(&server.into())).await?;
        Ok(Connection { stream, unread: Vec::new(), request_line: String::new() })
    }

    /// A connection on a stream that is established already.
    pub fn from_stream(stream: impl Into<Stream>) -> Connection {
        Connection { stream: stream.into(), unread: Vec::new(), request_line: String::new() }
    }

    /// Waits until what was sent has been delivered to the server's socket.
    pub async fn until_delivered(&self) {
        self.stream.until_delivered().await;
    }

    /// Sends bytes. A closed connection is no error here: the missing response shows it.
    pub async fn send(&mut self, bytes: &[u8]) {
        let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
        self.request_line = String::from_utf8_lossy(line).chars().take(200).collect();
        let sending = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        let _ = within(TEST_TIMEOUT, "sending", sending).await;
    }

    /// Reads the next response; `None` if the server closed the connection.
    pub async fn response(&mut self) -> Option<Response> {
        self.whole_response(BodyFraming::FromHead).await
    }

    /// Reads the next response to a HEAD request, which has no body whatever its Content-Length.
    pub async fn response_to_head(&mut self) -> Option<Response> {
        self.whole_response(BodyFraming::None).await
    }

    async fn whole_response(&mut self, rule: BodyFraming) -> Option<Response> {
        match self.try_response(rule).await {
            Ok(response) => response,
            Err(MalformedResponse(why)) => panic!("{why} in the response to `{}`", self.request_line),
        }
    }

    /// Reads the next response; `None` at the end of the connection.
    pub async fn try_response(&mut self, rule: BodyFraming) -> Result<Option<Response>, MalformedResponse> {
        let Some(head) = self.read_head().await? else { return Ok(None) };
        let (status, headers) = parse_head(&head)?;
        let mut response = Response { request_line: self.request_line.clone(), status, headers, body: Vec::new() };
        if rule == BodyFraming::None || matches!(status, 100..=199 | 204 | 304) {
            return Ok(Some(response));
        }
        let chunked = response.header_all("transfer-encoding").iter().any(|v| v.eq_ignore_ascii_case("chunked"));
        let length = response.header_all("content-length").first().map(|length| length.parse());
        response.body = match length {
            _ if chunked => self.chunks().await?,
            Some(Ok(length)) => self.read_exactly(length).await?,
            Some(Err(_)) => {
                return Err(MalformedResponse(format!("an invalid Content-Length: {}", response.describe())));
            }
            None => self.until_end().await,
        };
        Ok(Some(response))
    }

    /// Reads a message head with its blank line; `None` at the end of the connection.
    async fn read_head(&mut self) -> Result<Option<Vec<u8>>, MalformedResponse> {
        loop {
            if let Some(position) = find_bytes(&self.unread, BLANK_LINE) {
                return Ok(Some(self.unread.drain(..position + BLANK_LINE.len()).collect()));
            }
            if !self.read_more().await {
                return match self.unread.is_empty() {
                    true => Ok(None),
                    false => {
                        Err(MalformedResponse(format!("an incomplete head: {}", String::from_utf8_lossy(&self.unread))))
                    }
                };
            }
        }
    }

    async fn read_exactly(&mut self, length: usize) -> Result<Vec<u8>, MalformedResponse> {
        while self.unread.len() < length {
            if !self.read_more().await {
                return Err(MalformedResponse(format!("a body {} bytes too short", length - self.unread.len())));
            }
        }
        Ok(self.unread.drain(..length).collect())
    }

    /// Reads to the end of the connection.
    pub async fn until_end(&mut self) -> Vec<u8> {
        while self.read_more().await {}
        std::mem::take(&mut self.unread)
    }

    /// Whether the server closes the connection within this time without sending a byte.
    pub async fn closes_within(&mut self, limit: Duration) -> bool {
        matches!(tokio::time::timeout(limit, self.read_more()).await, Ok(false))
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The stream and the bytes behind the last response.
    pub fn into_parts(self) -> (Stream, Vec<u8>) {
        (self.stream, self.unread)
    }

    async fn chunks(&mut self) -> Result<Vec<u8>, MalformedResponse> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size =
                usize::from_str_radix(size, 16).map_err(|_| MalformedResponse(format!("the chunk size `{line}`")))?;
            if size == 0 {
                while !self.line().await?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.read_exactly(size).await?);
            if self.read_exactly(2).await? != b"\r\n" {
                return Err(MalformedResponse("a chunk without CRLF".to_owned()));
            }
        }
    }

    async fn line(&mut self) -> Result<String, MalformedResponse> {
        loop {
            if let Some(position) = find_bytes(&self.unread, b"\r\n") {
                let line: Vec<u8> = self.unread.drain(..position + 2).collect();
                return Ok(String::from_utf8_lossy(&line[..position]).into_owned());
            }
            if !self.read_more().await {
                return Err(MalformedResponse("an incomplete chunk".to_owned()));
            }
        }
    }

    /// Reads once; `false` at the end of the connection or on an error.
    async fn read_more(&mut self) -> bool {
        let mut piece = [0; 16 * 1024];
        match within(TEST_TIMEOUT, "a response", self.stream.read(&mut piece)).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.unread.extend_from_slice(&piece[..count]);
                true
            }
        }
    }
}

/// How the end of a response body is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// By Content-Length, chunked coding or the end of the connection.
    FromHead,
    /// There is no body.
    None,
}

/// The reason why a response is malformed or incomplete.
#[derive(Debug)]
pub struct MalformedResponse(pub String);

/// The position of `wanted` in `bytes`.
pub fn find_bytes(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Status and header lines of a response head.
fn parse_head(head: &[u8]) -> Result<(u16, Vec<(String, String)>), MalformedResponse> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.trim_end().split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| MalformedResponse(format!("no HTTP status line: {text}")))?;
    Ok((status, header_lines(lines)))
}

/// Splits header lines into name and value.
pub fn header_lines<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<(String, String)> {
    lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            (name.to_owned(), value.trim().to_owned())
        })
        .collect()
}

/// A request; `headers` are complete lines with their line ends.
pub fn raw_request(desk: &Gateway, line: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{line} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", desk.address()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}
