//! The upstream: a server that records every byte and misbehaves on demand.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::{SinkExt, StreamExt};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

use super::connection::{find_bytes, header_lines};
use super::eventually;

/// A request as received.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    pub method: String,
    /// The request target, unchanged.
    pub target: String,
    /// Header lines in order, names as sent.
    pub headers: Vec<(String, String)>,
    /// The body, without chunk framing.
    pub body: Vec<u8>,
    /// The raw head with its blank line.
    pub head: Vec<u8>,
    /// The number of its connection, from 1.
    pub connection: usize,
}

impl RecordedRequest {
    /// The value of a header; panics if the header is repeated.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let all = self.header_all(name);
        assert!(all.len() <= 1, "{name} occurs {} times:\n{}", all.len(), String::from_utf8_lossy(&self.head));
        all.first().copied()
    }

    /// All values of a header.
    pub fn header_all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str()).collect()
    }

    /// Whether this is a WebSocket handshake.
    pub fn is_upgrade(&self) -> bool {
        self.header_all("upgrade").iter().any(|value| value.eq_ignore_ascii_case("websocket"))
    }
}

/// An event on one of the upstream's WebSockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketEvent {
    Message(Message),
    /// A close frame with its code, if it has one.
    Closed(Option<u16>),
    /// The connection ended without a close frame.
    Disconnected,
}

/// A test's handler: gets the request head, the stream and the bytes behind the head.
pub type Script =
    Arc<dyn Fn(RecordedRequest, TcpStream, Vec<u8>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// How the upstream responds.
#[derive(Clone)]
pub enum Behaviour {
    /// 200 with the request as JSON; accepts WebSockets and echoes.
    Echo,
    /// Sends these bytes for any request and keeps the connection open.
    Respond(Vec<u8>),
    /// Sends these bytes and closes the connection.
    RespondAndClose(Vec<u8>),
    /// Reads the request and sends nothing.
    NeverRespond,
    /// Closes the connection after the request.
    CloseWithoutResponse,
    /// Responds 200 to a WebSocket handshake; otherwise like `Echo`.
    RefuseUpgrade,
    /// Sends the 101 and these bytes in one write, then echoes; otherwise like `Echo`.
    UpgradeWith(Vec<u8>),
    /// Runs the test's handler.
    Script(Script),
}

/// The subprotocol that the upstream selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subprotocol {
    None,
    /// The first one offered, if any.
    FirstOffered,
    /// This one, whether offered or not.
    Named(String),
}

struct State {
    behaviour: Mutex<Behaviour>,
    subprotocol: Mutex<Subprotocol>,
    requests: Mutex<Vec<RecordedRequest>>,
    events: Mutex<Vec<SocketEvent>>,
    raw: Mutex<Vec<u8>>,
    connections: AtomicUsize,
}

/// A listening upstream; stops on drop.
pub struct Upstream {
    address: SocketAddr,
    state: Arc<State>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

impl Upstream {
    /// Listens on a free port with `Behaviour::Echo`.
    pub async fn start() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let state = Arc::new(State {
            behaviour: Mutex::new(Behaviour::Echo),
            subprotocol: Mutex::new(Subprotocol::None),
            requests: Mutex::default(),
            events: Mutex::default(),
            raw: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let upstream =
            Upstream { address: listener.local_addr().expect("an address"), state, listening: Mutex::new(None) };
        upstream.accept(listener);
        upstream
    }

    fn accept(&self, listener: TcpListener) {
        let state = self.state.clone();
        let task = tokio::spawn(async move {
            // Owned by this task, so that every connection ends with the listener.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let number = state.connections.fetch_add(1, Ordering::SeqCst) + 1;
                connections.spawn(serve(stream, number, state.clone()));
            }
        });
        *self.listening.lock().unwrap() = Some(task);
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Applies to later requests.
    pub fn set_behaviour(&self, behaviour: Behaviour) {
        *self.state.behaviour.lock().unwrap() = behaviour;
    }

    /// Applies to later handshakes.
    pub fn set_subprotocol(&self, subprotocol: Subprotocol) {
        *self.state.subprotocol.lock().unwrap() = subprotocol;
    }

    /// Stops listening and closes every connection; new ones are refused.
    pub async fn stop_listening(&self) {
        let task = self.listening.lock().unwrap().take();
        if let Some(task) = task {
            task.abort();
            let _ = task.await;
        }
    }

    /// Listens on the same port again.
    pub async fn resume_listening(&self) {
        let listener = TcpListener::bind(self.address).await.expect("the same port");
        self.accept(listener);
    }

    /// All recorded requests.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.state.requests.lock().unwrap().clone()
    }

    /// Drops the recorded requests.
    pub fn clear_requests(&self) {
        self.state.requests.lock().unwrap().clear();
    }

    /// Waits until `count` requests were recorded.
    pub async fn wait_for_requests(&self, count: usize) -> Vec<RecordedRequest> {
        eventually(&format!("{count} requests at the upstream"), || async {
            Some(self.requests()).filter(|requests| requests.len() >= count)
        })
        .await
    }

    /// The only recorded request; panics on none or several.
    #[track_caller]
    pub fn only_request(&self) -> RecordedRequest {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "requests at the upstream: {requests:#?}");
        requests.remove(0)
    }

    /// The last recorded request.
    #[track_caller]
    pub fn last_request(&self) -> RecordedRequest {
        self.requests().pop().expect("a request at the upstream")
    }

    /// The WebSocket events so far.
    pub fn events(&self) -> Vec<SocketEvent> {
        self.state.events.lock().unwrap().clone()
    }

    /// The number of accepted connections.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Every byte received, without WebSocket frames.
    pub fn all_bytes(&self) -> Vec<u8> {
        self.state.raw.lock().unwrap().clone()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if let Some(task) = self.listening.lock().unwrap().take() {
            task.abort();
        }
    }
}

/// Serves the requests of one connection.
async fn serve(stream: TcpStream, number: usize, state: Arc<State>) {
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
