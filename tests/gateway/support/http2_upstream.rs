//! An upstream that speaks HTTP/2, with or without TLS.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response, request};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::buffered_stream::BLOCKED_AFTER;
use super::{TEST_TIMEOUT, eventually, within};

/// How much may be sent on a connection, and on each of its streams, before its receiver makes room (RFC 9113, section 6.9.2).
const WINDOW: usize = 65_535;

/// An upstream that answers by the end of the path:
/// - `/talk`: answers at once and sends each piece of the request's body back as it comes;
/// - `/never`: does not answer;
/// - `/early`: 413 at once, without the request's body;
/// - `/stuck`: 413 once [`Http2Upstream::answer_stuck`] is called; takes no more of the request's body than the first window;
/// - `/endless`: answers without an end once the first window is full, and makes room only by [`Http2Upstream::make_room`];
/// - `/trailers-only`: a header that ends the response;
/// - otherwise: the request's body, once it is complete.
///
/// A response with a body ends with the trailers `grpc-status: 0` and `x-deskgate-roles: admin`.
pub struct Http2Upstream {
    address: SocketAddr,
    seen: Arc<Seen>,
    acceptor: JoinHandle<()>,
}

/// What the upstream has seen.
#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    requests: Mutex<Vec<request::Parts>>,
    resets: AtomicUsize,
    /// How many bytes of the bodies of `/stuck` and `/endless` have come.
    stuck: AtomicUsize,
    answer_stuck: Notify,
    /// How many bytes the responses of `/endless` have.
    endless: AtomicUsize,
    /// How many bytes of the body of `/endless` are to be made room for.
    room: AtomicUsize,
    make_room: Notify,
}

impl Http2Upstream {
    /// Starts one without TLS.
    pub async fn start() -> Http2Upstream {
        Http2Upstream::start_with(None).await
    }

    /// Starts one; with an acceptor, it speaks TLS.
    pub async fn start_with(tls: Option<TlsAcceptor>) -> Http2Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Seen::default());
        let state = seen.clone();
        let acceptor = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, state) = (tls.clone(), state.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, state).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, state).await;
                            }
                        }
                    }
                });
            }
        });
        Http2Upstream { address, seen, acceptor }
    }

    /// The settings that make it the upstream `helpdesk`, with further ones of it.
    pub fn settings(&self, more: &str) -> String {
        format!("[upstreams.helpdesk]\naddresses = [\"{}\"]\nprotocol = \"http2\"\n{more}", self.address)
    }

    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<request::Parts> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// Waits until a request has been reset.
    pub async fn wait_for_reset(&self) {
        eventually("a reset request", || async { (self.seen.resets.load(Ordering::SeqCst) > 0).then_some(()) }).await;
    }

    /// Waits until so many bytes of a body have come that is not taken to its end.
    pub async fn wait_for_stuck(&self, bytes: usize) {
        eventually("a body", || async { (self.seen.stuck.load(Ordering::SeqCst) >= bytes).then_some(()) }).await;
    }

    /// Answers the request whose body is not taken to its end.
    pub async fn answer_stuck(&self) {
        self.seen.answer_stuck.notify_one();
        eventually("the answer", || async { (self.seen.stuck.load(Ordering::SeqCst) == 0).then_some(()) }).await;
    }

    /// Waits until the gateway takes no more of the response without an end.
    pub async fn wait_until_blocked(&self) {
        let blocked = async {
            let mut before = 0;
            loop {
                let sent = self.seen.endless.load(Ordering::SeqCst);
                if sent > 0 && sent == before {
                    return;
                }
                before = sent;
                tokio::time::sleep(BLOCKED_AFTER).await;
            }
        };
        within(TEST_TIMEOUT, "a blocked response", blocked).await;
    }

    /// Makes room for so many bytes of the body of `/endless`, and with that on the whole connection.
    pub async fn make_room(&self, bytes: usize) {
        self.seen.room.store(bytes, Ordering::SeqCst);
        self.seen.make_room.notify_one();
        eventually("room", || async { (self.seen.room.load(Ordering::SeqCst) == 0).then_some(()) }).await;
    }

    /// Waits until so many requests have come.
    pub async fn wait_for_requests(&self, count: usize) {
        eventually("requests", || async { (self.requests().len() >= count).then_some(()) }).await;
    }
}

impl Drop for Http2Upstream {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, seen: Arc<Seen>) {
    seen.connections.fetch_add(1, Ordering::SeqCst);
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, response))) = connection.accept().await {
        tokio::spawn(answer(request, response, seen.clone()));
    }
}

async fn answer(request: Request<RecvStream>, mut response: SendResponse<Bytes>, seen: Arc<Seen>) {
    let (head, mut body) = request.into_parts();
    let path = head.uri.path().to_owned();
    seen.requests.lock().unwrap().push(head);
    let answered = match path.rsplit('/').next() {
        Some("never") => {
            let reset = std::future::poll_fn(|context| response.poll_reset(context)).await;
            seen.resets.fetch_add(usize::from(reset.is_ok()), Ordering::SeqCst);
            Ok(())
        }
        Some("trailers-only") => {
            let header = Response::builder().header("grpc-status", "12").body(()).expect("a response");
            response.send_response(header, true).map(drop)
        }
        Some("early") => {
            let header = Response::builder().status(413).body(()).expect("a response");
            response.send_response(header, true).map(drop)
        }
        Some("stuck") => stuck(&mut body, &mut response, &seen).await,
        Some("endless") => endless(&mut body, &mut response, &seen).await,
        Some("talk") => talk(&mut body, &mut response).await,
        _ => echo(&mut body, &mut response).await,
    };
    if answered.is_err() {
        seen.resets.fetch_add(1, Ordering::SeqCst);
    }
}

async fn stuck(body: &mut RecvStream, response: &mut SendResponse<Bytes>, seen: &Seen) -> Result<(), h2::Error> {
    let answer = seen.answer_stuck.notified();
    let reading = async {
        while let Some(Ok(piece)) = body.data().await {
            seen.stuck.fetch_add(piece.len(), Ordering::SeqCst);
        }
        std::future::pending().await
    };
    tokio::select! {
        () = answer => {}
        () = reading => {}
    }
    let mut sending = response.send_response(Response::builder().status(413).body(()).expect("a response"), true)?;
    seen.stuck.store(0, Ordering::SeqCst);
    // The end of this function resets the stream, so the gateway must have done so.
    std::future::poll_fn(|context| sending.poll_reset(context)).await.map(drop)
}

async fn endless(body: &mut RecvStream, response: &mut SendResponse<Bytes>, seen: &Seen) -> Result<(), h2::Error> {
    while seen.stuck.load(Ordering::SeqCst) < WINDOW {
        let Some(piece) = body.data().await else { return Ok(()) };
        seen.stuck.fetch_add(piece?.len(), Ordering::SeqCst);
    }
    let mut sending = begin(response)?;
    let mut window = body.flow_control().clone();
    let reading = async {
        while let Some(Ok(piece)) = body.data().await {
            seen.stuck.fetch_add(piece.len(), Ordering::SeqCst);
        }
        std::future::pending().await
    };
    let writing = async {
        loop {
            sending.reserve_capacity(16 * 1024);
            let Some(room) = std::future::poll_fn(|context| sending.poll_capacity(context)).await else {
                return Ok(());
            };
            let piece = vec![b'x'; room?];
            seen.endless.fetch_add(piece.len(), Ordering::SeqCst);
            sending.send_data(piece.into(), false)?;
        }
    };
    let making_room = async {
        seen.make_room.notified().await;
        window.release_capacity(seen.room.swap(0, Ordering::SeqCst))?;
        std::future::pending().await
    };
    tokio::select! {
        ended = writing => ended,
        ended = making_room => ended,
        ended = reading => ended,
    }
}

async fn talk(body: &mut RecvStream, response: &mut SendResponse<Bytes>) -> Result<(), h2::Error> {
    let mut sending = begin(response)?;
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        sending.send_data(piece, false)?;
    }
    sending.send_trailers(trailers())
}

async fn echo(body: &mut RecvStream, response: &mut SendResponse<Bytes>) -> Result<(), h2::Error> {
    let mut whole = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        whole.extend_from_slice(&piece);
    }
    let mut sending = begin(response)?;
    sending.send_data(whole.into(), false)?;
    sending.send_trailers(trailers())
}

fn begin(response: &mut SendResponse<Bytes>) -> Result<SendStream<Bytes>, h2::Error> {
    response.send_response(Response::new(()), false)
}

fn trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers.insert("x-deskgate-roles", HeaderValue::from_static("admin"));
    trailers
}
