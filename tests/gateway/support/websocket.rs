//! WebSockets as clients open them, with the handshake in the open.

use std::net::SocketAddr;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

use super::{Answer, Connection, PATIENCE, within};

/// Any 16 bytes will do: the accept key is checked against it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// A handshake that has not been sent yet.
#[derive(Clone)]
pub struct Handshake {
    address: SocketAddr,
    target: String,
    method: String,
    protocols: Vec<String>,
    headers: Vec<(String, String)>,
    behind: Vec<u8>,
}

impl Handshake {
    /// A plain handshake without any credentials.
    pub fn new(address: SocketAddr, target: &str) -> Handshake {
        Handshake {
            address,
            target: target.to_owned(),
            method: "GET".to_owned(),
            protocols: Vec::new(),
            headers: Vec::new(),
            behind: Vec::new(),
        }
    }

    /// Offers these subprotocols instead, in one header.
    pub fn protocols(mut self, protocols: &[&str]) -> Handshake {
        self.protocols = protocols.iter().map(|protocol| (*protocol).to_owned()).collect();
        self
    }

    /// Offers these after those already there.
    pub fn also_protocols(mut self, protocols: &[&str]) -> Handshake {
        self.protocols.extend(protocols.iter().map(|protocol| (*protocol).to_owned()));
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

    /// Sends these bytes in the same write as the handshake.
    pub fn with_bytes_behind(mut self, bytes: &[u8]) -> Handshake {
        self.behind = bytes.to_vec();
        self
    }

    /// The bytes of the request, without those behind it.
    pub fn bytes(&self) -> Vec<u8> {
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n",
            self.method, self.target, self.address
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

    /// Sends it; fails when it is refused.
    pub async fn accepted(self) -> Socket {
        match self.open().await {
            Ok(socket) => socket,
            Err(answer) => panic!("the handshake was refused: {}", answer.describe()),
        }
    }

    /// Sends it; fails when it is accepted.
    pub async fn refused(self) -> Answer {
        let target = self.target.clone();
        match self.open().await {
            Ok(_) => panic!("the handshake to {target} was accepted"),
            Err(answer) => answer,
        }
    }

    /// Sends it: a socket, or the answer that refused it.
    pub async fn open(self) -> Result<Socket, Answer> {
        let mut connection = Connection::open(self.address).await;
        let mut bytes = self.bytes();
        bytes.extend_from_slice(&self.behind);
        connection.send(&bytes).await;
        let answer = connection.answer().await.unwrap_or_else(|| panic!("no answer to the handshake {}", self.target));
        if answer.status != 101 {
            return Err(answer);
        }
        assert_eq!(
            answer.header("sec-websocket-accept"),
            Some(derive_accept_key(KEY.as_bytes()).as_str()),
            "the accept key of {}",
            answer.describe()
        );
        let (stream, unread) = connection.into_parts();
        let stream = WebSocketStream::from_partially_read(stream, unread, Role::Client, None).await;
        Ok(Socket { stream, answer })
    }
}

/// An open WebSocket.
pub struct Socket {
    stream: WebSocketStream<TcpStream>,
    answer: Answer,
}

/// How a socket ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With a close frame that names this code.
    Code(u16),
    /// With a close frame that names none.
    NoCode,
    /// The connection was cut.
    Cut,
}

impl Socket {
    /// The 101.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    /// The negotiated subprotocol.
    #[track_caller]
    pub fn protocol(&self) -> Option<&str> {
        self.answer.header("sec-websocket-protocol")
    }

    /// Sends a text message.
    pub async fn send(&mut self, text: &str) {
        self.send_message(Message::text(text)).await;
    }

    /// Sends any message.
    pub async fn send_message(&mut self, message: Message) {
        within(PATIENCE, "sending", self.stream.send(message)).await.expect("an open socket");
    }

    /// The next message; `None` when the socket has ended.
    pub async fn next(&mut self) -> Option<Message> {
        within(PATIENCE, "a message", self.stream.next()).await.and_then(Result::ok)
    }

    /// Sends a text and waits for the same to come back.
    pub async fn echo(&mut self, text: &str) {
        self.send(text).await;
        assert_eq!(self.next().await, Some(Message::text(text)), "the echo");
    }

    /// The close code that arrives within this time; what else arrives is passed over.
    pub async fn closed_within(&mut self, limit: Duration) -> Option<u16> {
        match self.ends_within(limit).await {
            Some(Ending::Code(code)) => Some(code),
            _ => None,
        }
    }

    /// How it ends within this time; `None` when it is still open then.
    pub async fn ends_within(&mut self, limit: Duration) -> Option<Ending> {
        let ending = async {
            loop {
                match self.stream.next().await {
                    Some(Ok(Message::Close(Some(frame)))) => return Ending::Code(frame.code.into()),
                    Some(Ok(Message::Close(None))) => return Ending::NoCode,
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Ending::Cut,
                }
            }
        };
        tokio::time::timeout(limit, ending).await.ok()
    }

    /// The WebSocket beneath.
    pub fn stream(&mut self) -> &mut WebSocketStream<TcpStream> {
        &mut self.stream
    }
}
