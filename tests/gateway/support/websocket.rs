//! A WebSocket client with a configurable handshake.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

use super::{Connection, Response, ServerAddress, Stream, TEST_TIMEOUT, within};

/// The example key of RFC 6455.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// A handshake request before it is sent.
#[derive(Clone)]
pub struct Handshake {
    server: ServerAddress,
    host: Option<String>,
    target: String,
    method: String,
    protocols: Vec<String>,
    headers: Vec<(String, String)>,
    behind: Vec<u8>,
}

impl Handshake {
    /// A handshake without credentials.
    pub fn new(server: impl Into<ServerAddress>, target: &str) -> Handshake {
        Handshake {
            server: server.into(),
            host: None,
            target: target.to_owned(),
            method: "GET".to_owned(),
            protocols: Vec::new(),
            headers: Vec::new(),
            behind: Vec::new(),
        }
    }

    /// Replaces the offered subprotocols, in one header line.
    pub fn protocols(mut self, protocols: &[&str]) -> Handshake {
        self.protocols = protocols.iter().map(|protocol| (*protocol).to_owned()).collect();
        self
    }

    /// Offers further subprotocols.
    pub fn also_protocols(mut self, protocols: &[&str]) -> Handshake {
        self.protocols.extend(protocols.iter().map(|protocol| (*protocol).to_owned()));
        self
    }

    /// Names this `Host` instead of the server's address.
    pub fn host(mut self, host: &str) -> Handshake {
        self.host = Some(host.to_owned());
        self
    }

    /// Adds a header line.
    pub fn header(mut self, name: &str, value: &str) -> Handshake {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Uses another method.
    pub fn method(mut self, method: &str) -> Handshake {
        self.method = method.to_owned();
        self
    }

    /// Sends these bytes behind the handshake in the same write.
    pub fn followed_by(mut self, bytes: &[u8]) -> Handshake {
        self.behind = bytes.to_vec();
        self
    }

    /// The request head.
    pub fn bytes(&self) -> Vec<u8> {
        let host = self.host.clone().unwrap_or_else(|| self.server.address.to_string());
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n",
            self.method, self.target
        );
        if !self.protocols.is_empty() {
            head.push_str(&format!("Sec-WebSocket-Protocol: {}\r\n", self.protocols.join(", ")));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// Sends the handshake; panics if it is refused.
    pub async fn expect_accepted(self) -> WebSocket {
        match self.open().await {
            Ok(socket) => socket,
            Err(response) => panic!("the handshake was refused: {}", response.describe()),
        }
    }

    /// Sends the handshake and returns the refusal; panics if it is accepted.
    pub async fn expect_refused(self) -> Response {
        let target = self.target.clone();
        match self.open().await {
            Ok(_) => panic!("the handshake to {target} was accepted"),
            Err(response) => response,
        }
    }

    /// Sends the handshake; returns the WebSocket or the response that refused it.
    pub async fn open(self) -> Result<WebSocket, Response> {
        let mut connection = Connection::open(self.server.clone()).await;
        let mut bytes = self.bytes();
        bytes.extend_from_slice(&self.behind);
        connection.send(&bytes).await;
        let response =
            connection.response().await.unwrap_or_else(|| panic!("no response to the handshake {}", self.target));
        if response.status != 101 {
            return Err(response);
        }
        assert_eq!(
            response.header("sec-websocket-accept"),
            Some(derive_accept_key(KEY.as_bytes()).as_str()),
            "the accept key of {}",
            response.describe()
        );
        let (stream, unread) = connection.into_parts();
        let stream = WebSocketStream::from_partially_read(stream, unread, Role::Client, None).await;
        Ok(WebSocket { stream, response })
    }
}

/// An open WebSocket.
pub struct WebSocket {
    stream: WebSocketStream<Stream>,
    response: Response,
}

/// How a WebSocket ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketEnd {
    /// Close frame with this code.
    Code(u16),
    /// Close frame without a code.
    NoCode,
    /// End of the connection without a close frame.
    Disconnected,
}

impl WebSocket {
    /// The 101 response.
    pub fn response(&self) -> &Response {
        &self.response
    }

    /// The negotiated subprotocol.
    #[track_caller]
    pub fn protocol(&self) -> Option<&str> {
        self.response.header("sec-websocket-protocol")
    }

    /// Sends a text message.
    pub async fn send(&mut self, text: &str) {
        self.send_message(Message::text(text)).await;
    }

    /// Sends any message.
    pub async fn send_message(&mut self, message: Message) {
        within(TEST_TIMEOUT, "sending", self.stream.send(message)).await.expect("an open socket");
    }

    /// Reads the next message; `None` at the end.
    pub async fn next(&mut self) -> Option<Message> {
        within(TEST_TIMEOUT, "a message", self.stream.next()).await.and_then(Result::ok)
    }

    /// Sends a text and asserts that the upstream echoes it.
    pub async fn echo(&mut self, text: &str) {
        self.send(text).await;
        assert_eq!(self.next().await, Some(Message::text(text)), "the echo");
    }

    /// The close code received within this time; other messages are ignored.
    pub async fn close_code_within(&mut self, limit: Duration) -> Option<u16> {
        match self.ends_within(limit).await {
            Some(SocketEnd::Code(code)) => Some(code),
            _ => None,
        }
    }

    /// How the socket ends within this time; `None` if it stays open.
    pub async fn ends_within(&mut self, limit: Duration) -> Option<SocketEnd> {
        let ending = async {
            loop {
                match self.stream.next().await {
                    Some(Ok(Message::Close(Some(frame)))) => return SocketEnd::Code(frame.code.into()),
                    Some(Ok(Message::Close(None))) => return SocketEnd::NoCode,
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return SocketEnd::Disconnected,
                }
            }
        };
        tokio::time::timeout(limit, ending).await.ok()
    }

    pub fn stream(&mut self) -> &mut WebSocketStream<Stream> {
        &mut self.stream
    }
}
