//! The upstream: a server that records every byte and misbehaves on demand.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::protocol::Message;

use super::eventually;
use super::upstream_server::serve;

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

/// The state shared with the connections.
pub(super) struct State {
    pub(super) behaviour: Mutex<Behaviour>,
    pub(super) subprotocol: Mutex<Subprotocol>,
    pub(super) requests: Mutex<Vec<RecordedRequest>>,
    pub(super) events: Mutex<Vec<SocketEvent>>,
    pub(super) raw: Mutex<Vec<u8>>,
    pub(super) connections: AtomicUsize,
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

/// A 200 response of the upstream; `headers` are complete lines with their line ends.
pub fn ok_response(headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{headers}\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}
