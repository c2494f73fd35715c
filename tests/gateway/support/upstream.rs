//! The service behind the gateway: a real server that remembers every byte and misbehaves on demand.

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

use super::eventually;
use super::wire::{find, header_lines};

/// One request as it arrived.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The method.
    pub method: String,
    /// The target, untouched.
    pub target: String,
    /// Header lines in order, names as sent.
    pub headers: Vec<(String, String)>,
    /// The body, chunks joined.
    pub body: Vec<u8>,
    /// The head as bytes, with its blank line.
    pub head: Vec<u8>,
    /// Which connection it came on, counted from one.
    pub connection: usize,
}

impl Recorded {
    /// The only value of a header; fails when it stands more than once.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let all = self.header_all(name);
        assert!(all.len() <= 1, "{name} stands {} times:\n{}", all.len(), String::from_utf8_lossy(&self.head));
        all.first().copied()
    }

    /// Every value of a header.
    pub fn header_all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str()).collect()
    }

    /// Whether it asks for a WebSocket.
    pub fn is_upgrade(&self) -> bool {
        self.header_all("upgrade").iter().any(|value| value.eq_ignore_ascii_case("websocket"))
    }
}

/// What happened on one of the upstream's WebSockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketEvent {
    /// A message arrived.
    Message(Message),
    /// A close frame arrived, with its code if it named one.
    Closed(Option<u16>),
    /// The connection ended without a close frame.
    Cut,
}

/// What a test's own behaviour does with a connection whose request head has been read.
pub type Script = Arc<dyn Fn(Recorded, TcpStream, Vec<u8>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// How the upstream answers.
#[derive(Clone)]
pub enum Behaviour {
    /// 200 with the request as JSON; WebSockets are accepted and echo.
    Echo,
    /// These bytes, whatever was asked; the connection stays open.
    Answer(Vec<u8>),
    /// These bytes, then the end of the connection.
    AnswerAndClose(Vec<u8>),
    /// Reads the request and never answers.
    Hang,
    /// Closes the connection instead of answering.
    HangUp,
    /// 200 with a body where a WebSocket was asked for; else as `Echo`.
    RefuseUpgrade,
    /// The 101 and these bytes in one write, then an echo; else as `Echo`.
    UpgradeWith(Vec<u8>),
    /// The test's own: gets the request (without its body), the stream, and what was read behind the head.
    Script(Script),
}

/// Which subprotocol the upstream chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    /// None.
    Nothing,
    /// The first that it is offered, if any.
    First,
    /// This one, offered or not.
    Named(String),
}

struct State {
    behaviour: Mutex<Behaviour>,
    chosen: Mutex<Chosen>,
    requests: Mutex<Vec<Recorded>>,
    events: Mutex<Vec<SocketEvent>>,
    raw: Mutex<Vec<u8>>,
    connections: AtomicUsize,
}

/// The upstream; gone when dropped.
pub struct Upstream {
    address: SocketAddr,
    state: Arc<State>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

impl Upstream {
    /// Listens on a free port and echoes.
    pub async fn start() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let state = Arc::new(State {
            behaviour: Mutex::new(Behaviour::Echo),
            chosen: Mutex::new(Chosen::Nothing),
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
            // Held here, so that every connection ends when the listener does.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let number = state.connections.fetch_add(1, Ordering::SeqCst) + 1;
                connections.spawn(serve(stream, number, state.clone()));
            }
        });
        *self.listening.lock().unwrap() = Some(task);
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers like this from now on.
    pub fn behave(&self, behaviour: Behaviour) {
        *self.state.behaviour.lock().unwrap() = behaviour;
    }

    /// Chooses subprotocols like this from now on.
    pub fn choose(&self, chosen: Chosen) {
        *self.state.chosen.lock().unwrap() = chosen;
    }

    /// Stops listening and cuts every connection: new ones are refused.
    pub async fn refuse(&self) {
        let task = self.listening.lock().unwrap().take();
        if let Some(task) = task {
            task.abort();
            let _ = task.await;
        }
    }

    /// Listens on the same port again.
    pub async fn listen_again(&self) {
        let listener = TcpListener::bind(self.address).await.expect("the same port");
        self.accept(listener);
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<Recorded> {
        self.state.requests.lock().unwrap().clone()
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        self.state.requests.lock().unwrap().clear();
    }

    /// The requests, once there are this many.
    pub async fn received(&self, count: usize) -> Vec<Recorded> {
        eventually(&format!("{count} requests at the upstream"), || async {
            Some(self.requests()).filter(|requests| requests.len() >= count)
        })
        .await
    }

    /// The only request so far; fails when there is none or more than one.
    #[track_caller]
    pub fn only_request(&self) -> Recorded {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "requests at the upstream: {requests:#?}");
        requests.remove(0)
    }

    /// The last request; fails when there is none.
    #[track_caller]
    pub fn last_request(&self) -> Recorded {
        self.requests().pop().expect("a request at the upstream")
    }

    /// What happened on the WebSockets so far.
    pub fn events(&self) -> Vec<SocketEvent> {
        self.state.events.lock().unwrap().clone()
    }

    /// How many connections were made to it.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Every byte that ever arrived, WebSocket frames apart.
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

/// One connection, request after request.
async fn serve(stream: TcpStream, number: usize, state: Arc<State>) {
    let _ = stream.set_nodelay(true);
    let mut incoming = Incoming { stream, unread: Vec::new(), state: state.clone() };
    while let Some(mut request) = incoming.request(number).await {
        let behaviour = state.behaviour.lock().unwrap().clone();
        if let Behaviour::Script(script) = behaviour {
            state.requests.lock().unwrap().push(request.clone());
            script(request, incoming.stream, incoming.unread).await;
            return;
        }
        let whole = incoming.body(&mut request).await;
        state.requests.lock().unwrap().push(request.clone());
        if !whole {
            return;
        }
        match behaviour {
            Behaviour::Hang => std::future::pending().await,
            Behaviour::HangUp => return,
            Behaviour::Answer(bytes) => {
                if incoming.stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Behaviour::AnswerAndClose(bytes) => {
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

fn echo_of(request: &Recorded) -> Vec<u8> {
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

async fn upgrade(mut incoming: Incoming, request: &Recorded, behind: &[u8]) {
    let key = request.header_all("sec-websocket-key").first().copied().unwrap_or_default().to_owned();
    let mut answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {}\r\n",
        derive_accept_key(key.as_bytes())
    );
    let chosen = incoming.state.chosen.lock().unwrap().clone();
    let offered = request.header_all("sec-websocket-protocol").join(",");
    let first = offered.split(',').map(str::trim).find(|protocol| !protocol.is_empty());
    let protocol = match &chosen {
        Chosen::Nothing => None,
        Chosen::First => first,
        Chosen::Named(name) => Some(name.as_str()),
    };
    if let Some(protocol) = protocol {
        answer.push_str(&format!("Sec-WebSocket-Protocol: {protocol}\r\n"));
    }
    answer.push_str("\r\n");
    let mut bytes = answer.into_bytes();
    bytes.extend_from_slice(behind);
    if incoming.stream.write_all(&bytes).await.is_err() {
        return;
    }
    let state = incoming.state.clone();
    let note = |event| state.events.lock().unwrap().push(event);
    let mut socket = WebSocketStream::from_partially_read(incoming.stream, incoming.unread, Role::Server, None).await;
    loop {
        match socket.next().await {
            Some(Ok(Message::Close(frame))) => {
                note(SocketEvent::Closed(frame.map(|frame| frame.code.into())));
                // Lets the answering close frame out.
                let _ = socket.flush().await;
                return;
            }
            Some(Ok(message)) => {
                note(SocketEvent::Message(message.clone()));
                let echoed = matches!(message, Message::Text(_) | Message::Binary(_));
                if echoed && socket.send(message).await.is_err() {
                    note(SocketEvent::Cut);
                    return;
                }
            }
            Some(Err(_)) | None => {
                note(SocketEvent::Cut);
                return;
            }
        }
    }
}

/// The reading half of a connection.
struct Incoming {
    stream: TcpStream,
    unread: Vec<u8>,
    state: Arc<State>,
}

impl Incoming {
    /// The next request without its body; `None` when the connection is over.
    async fn request(&mut self, connection: usize) -> Option<Recorded> {
        let end = loop {
            match find(&self.unread, b"\r\n\r\n") {
                Some(place) => break place + 4,
                None if self.more().await => {}
                None => return None,
            }
        };
        let head: Vec<u8> = self.unread.drain(..end).collect();
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut lines = text.trim_end().split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let method = words.next().unwrap_or_default().to_owned();
        let target = words.next().unwrap_or_default().to_owned();
        Some(Recorded { method, target, headers: header_lines(lines), body: Vec::new(), head, connection })
    }

    /// Reads the body; `false` when the connection ended before it.
    async fn body(&mut self, request: &mut Recorded) -> bool {
        let chunked = request.header_all("transfer-encoding").iter().any(|value| value.contains("chunked"));
        if chunked {
            return self.chunks(&mut request.body).await;
        }
        let length = request.header_all("content-length").first().and_then(|length| length.parse().ok()).unwrap_or(0);
        while self.unread.len() < length {
            if !self.more().await {
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
                if !self.more().await {
                    return false;
                }
            }
            body.extend(self.unread.drain(..size));
            self.unread.drain(..2);
        }
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(place) = find(&self.unread, b"\r\n") {
                let line: Vec<u8> = self.unread.drain(..place + 2).collect();
                return Some(String::from_utf8_lossy(&line[..place]).into_owned());
            }
            if !self.more().await {
                return None;
            }
        }
    }

    async fn more(&mut self) -> bool {
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
