//! The connections of the upstream: reads requests and responds as configured.

use std::sync::Arc;

use futures::{SinkExt, StreamExt};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

use super::connection::{find_bytes, header_lines};
use super::upstream::State;
use super::{Behaviour, RecordedRequest, SocketEvent, Subprotocol};

/// Serves the requests of one connection.
pub(super) async fn serve(stream: TcpStream, number: usize, state: Arc<State>) {
    let _ = stream.set_nodelay(true);
    let mut incoming = Incoming { stream, unread: Vec::new(), state: state.clone() };
    while let Some(mut request) = incoming.read_request(number).await {
        let behaviour = state.behaviour.lock().unwrap().clone();
        if let Behaviour::Script(script) = behaviour {
            state.requests.lock().unwrap().push(request.clone());
            script(request, incoming.stream, incoming.unread).await;
            return;
        }
        let complete = incoming.read_body(&mut request).await;
        state.requests.lock().unwrap().push(request.clone());
        if !complete {
            return;
        }
        match behaviour {
            Behaviour::NeverRespond => std::future::pending().await,
            Behaviour::CloseWithoutResponse => return,
            Behaviour::Respond(bytes) => {
                if incoming.stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Behaviour::RespondAndClose(bytes) => {
                let _ = incoming.stream.write_all(&bytes).await;
                return;
            }
            Behaviour::UpgradeWith(bytes) if request.is_upgrade() => {
                return upgrade(incoming, &request, &bytes).await;
            }
            Behaviour::Echo if request.is_upgrade() => return upgrade(incoming, &request, b"").await,
            Behaviour::Echo | Behaviour::RefuseUpgrade | Behaviour::UpgradeWith(_) | Behaviour::Script(_) => {
                if incoming.stream.write_all(&echo_of(&request)).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn echo_of(request: &RecordedRequest) -> Vec<u8> {
    let body = json!({
        "method": request.method,
        "target": request.target,
        "headers": request.headers,
        "body": String::from_utf8_lossy(&request.body),
    })
    .to_string();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    match request.method.as_str() {
        "HEAD" => head.into_bytes(),
        _ => format!("{head}{body}").into_bytes(),
    }
}

async fn upgrade(mut incoming: Incoming, request: &RecordedRequest, behind: &[u8]) {
    let key = request.header_all("sec-websocket-key").first().copied().unwrap_or_default().to_owned();
    let mut response = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {}\r\n",
        derive_accept_key(key.as_bytes())
    );
    let selected = incoming.state.subprotocol.lock().unwrap().clone();
    let offered = request.header_all("sec-websocket-protocol").join(",");
    let first = offered.split(',').map(str::trim).find(|protocol| !protocol.is_empty());
    let protocol = match &selected {
        Subprotocol::None => None,
        Subprotocol::FirstOffered => first,
        Subprotocol::Named(name) => Some(name.as_str()),
    };
    if let Some(protocol) = protocol {
        response.push_str(&format!("Sec-WebSocket-Protocol: {protocol}\r\n"));
    }
    response.push_str("\r\n");
    let mut bytes = response.into_bytes();
    bytes.extend_from_slice(behind);
    if incoming.stream.write_all(&bytes).await.is_err() {
        return;
    }
    let state = incoming.state.clone();
    let record = |event| state.events.lock().unwrap().push(event);
    let mut socket = WebSocketStream::from_partially_read(incoming.stream, incoming.unread, Role::Server, None).await;
    loop {
        match socket.next().await {
            Some(Ok(Message::Close(frame))) => {
                record(SocketEvent::Closed(frame.map(|frame| frame.code.into())));
                // Sends the close frame of the response.
                let _ = socket.flush().await;
                return;
            }
            Some(Ok(message)) => {
                record(SocketEvent::Message(message.clone()));
                let echoed = matches!(message, Message::Text(_) | Message::Binary(_));
                if echoed && socket.send(message).await.is_err() {
                    record(SocketEvent::Disconnected);
                    return;
                }
            }
            Some(Err(_)) | None => {
                record(SocketEvent::Disconnected);
                return;
            }
        }
    }
}

/// A connection that requests are read from.
struct Incoming {
    stream: TcpStream,
    unread: Vec<u8>,
    state: Arc<State>,
}

impl Incoming {
    /// Reads the next request head; `None` at the end of the connection.
    async fn read_request(&mut self, connection: usize) -> Option<RecordedRequest> {
        let end = loop {
            match find_bytes(&self.unread, b"\r\n\r\n") {
                Some(position) => break position + 4,
                None if self.read_more().await => {}
                None => return None,
            }
        };
        let head: Vec<u8> = self.unread.drain(..end).collect();
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut lines = text.trim_end().split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let method = words.next().unwrap_or_default().to_owned();
        let target = words.next().unwrap_or_default().to_owned();
        Some(RecordedRequest { method, target, headers: header_lines(lines), body: Vec::new(), head, connection })
    }

    /// Reads the body; `false` if the connection ended before it was complete.
    async fn read_body(&mut self, request: &mut RecordedRequest) -> bool {
        let chunked = request.header_all("transfer-encoding").iter().any(|value| value.contains("chunked"));
        if chunked {
            return self.chunks(&mut request.body).await;
        }
        let length = request.header_all("content-length").first().and_then(|length| length.parse().ok()).unwrap_or(0);
        while self.unread.len() < length {
            if !self.read_more().await {
                request.body = std::mem::take(&mut self.unread);
                return false;
            }
        }
        request.body = self.unread.drain(..length).collect();
        true
    }

    async fn chunks(&mut self, body: &mut Vec<u8>) -> bool {
        loop {
            let Some(line) = self.line().await else { return false };
            let size = line.split(';').next().unwrap_or_default().trim().to_owned();
            let Ok(size) = usize::from_str_radix(&size, 16) else { return false };
            if size == 0 {
                loop {
                    match self.line().await {
                        Some(trailer) if trailer.is_empty() => return true,
                        Some(_) => {}
                        None => return false,
                    }
                }
            }
            while self.unread.len() < size + 2 {
                if !self.read_more().await {
                    return false;
                }
            }
            body.extend(self.unread.drain(..size));
            self.unread.drain(..2);
        }
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(position) = find_bytes(&self.unread, b"\r\n") {
                let line: Vec<u8> = self.unread.drain(..position + 2).collect();
                return Some(String::from_utf8_lossy(&line[..position]).into_owned());
            }
            if !self.read_more().await {
                return None;
            }
        }
    }

    async fn read_more(&mut self) -> bool {
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.unread.extend_from_slice(&piece[..count]);
                self.state.raw.lock().unwrap().extend_from_slice(&piece[..count]);
                true
            }
        }
    }
}
