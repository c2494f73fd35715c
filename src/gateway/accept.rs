//! Accepts client connections, reads the PROXY header and completes the TLS handshake where the listener has them. On HTTP/1.1 each
//! request goes to the fast lane, or to Pingora's if the fast lane does not take it; an HTTP/2 connection goes to Pingora as a whole.
//! Reading heads is left to [`connection`](super::connection), their turn to [`concurrency`](super::concurrency).

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::FutureExt;
use pingora_core::apps::{HttpServerApp, ServerApp};
use pingora_core::listeners::tls::Acceptor as TlsAcceptor;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::l4::ext::set_tcp_keepalive;
use pingora_core::protocols::{ALPN, Stream};
use pingora_core::server::ShutdownWatch;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::concurrency::{ConcurrencySlot, Urgency};
use super::connection::{ClientLimits, Connection};
use super::connection_limits::{ConnectionLimits, ConnectionSlot};
use super::connection_slots::{ConnectionSlots, OccupiedSlot};
use super::drain_signal::DrainSignal;
use super::early_refusal::{self, EarlyRefusals};
use super::fast_lane::LaneEnd;
use super::linger;
use super::plain_stream::PlainStream;
use super::proxy_app::ProxyApp;
use super::proxy_protocol::{self, ProxiedClient};
use crate::error::BadRequest;
use crate::metrics::Metrics;
use crate::pipeline::client_address::TrustedProxies;
use crate::pipeline::head::Transport;
use crate::upstreams::tcp_keepalive;

/// A slower client would hold a connection slot without sending a request.
const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time for telling a client over TLS that its connection ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// The beginning of HTTP/2's preface. No method of HTTP/1 begins like it.
const HTTP2_PREFACE_START: &[u8; 3] = b"PRI";

/// Pingora's limit on the time between two requests, in seconds. The connection has its own; any value allows reuse.
const KEEPALIVE: u64 = 60;

/// The pause after a failed accept, for example when no file descriptor is free.
const ACCEPT_ERROR_BACKOFF: Duration = Duration::from_millis(50);

/// The most bytes that the kernel keeps for a client before it can send them; without a limit it keeps megabytes, and only
/// a write that waits shows that the client reads nothing.
#[cfg(target_os = "linux")]
const UNSENT: u32 = 64 * 1024;

/// Accepts the connections of all listeners.
pub(crate) struct Acceptor {
    pub(crate) app: Arc<ProxyApp>,
    /// The limits of connections that are accepted from now on.
    pub(crate) limits: ArcSwap<ClientLimits>,
    /// One per open client connection, WebSockets included.
    pub(crate) connection_slots: ConnectionSlots,
    /// The connections of each address.
    pub(crate) connection_limits: Arc<ConnectionLimits>,
    pub(crate) drain: Arc<DrainSignal>,
    pub(crate) metrics: Arc<Metrics>,
}

/// How the connections of one listener begin.
pub(crate) struct ListenerSettings {
    /// None on plain HTTP. A reload replaces what is inside.
    pub(crate) tls: Option<Arc<ArcSwap<TlsAcceptor>>>,
    /// Whether HTTP/2 is accepted without TLS.
    pub(crate) accepts_h2c: bool,
    /// The load balancers that must name the client of each connection (PROXY protocol), if there are any.
    pub(crate) proxy_protocol: Option<TrustedProxies>,
    /// How requests on its connections arrive.
    pub(crate) transport: Transport,
}

/// An accepted connection.
struct AcceptedConnection {
    transport: PlainStream,
    /// The client's address, which a load balancer may have named.
    address: SocketAddr,
    slot: ConnectionSlot,
}

/// Why a connection is closed before a request is read; the label of `connections_refused_total`.
#[derive(Debug, Clone, Copy)]
enum ConnectionRefusal {
    /// A peer that is no trusted proxy, on a listener with the PROXY protocol.
    UntrustedProxy,
    /// A trusted proxy that does not begin with a header of the PROXY protocol, or that sends it too slowly.
    ProxyHeader,
    /// Plain HTTP on a listener with TLS.
    PlainHttp,
    /// A TLS handshake that failed or took too long.
    TlsHandshake,
}

impl ConnectionRefusal {
    /// All labels.
    const LABELS: [&'static str; 4] = [
        Self::UntrustedProxy.as_str(),
        Self::ProxyHeader.as_str(),
        Self::PlainHttp.as_str(),
        Self::TlsHandshake.as_str(),
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::UntrustedProxy => "untrusted_proxy",
            Self::ProxyHeader => "proxy_header",
            Self::PlainHttp => "plain_http",
            Self::TlsHandshake => "tls_handshake",
        }
    }
}

/// Creates the counters of refused connections, so that an alert sees the first one as an increase.
pub(crate) fn create_metrics(metrics: &Metrics) {
    metrics.create_refused_connections(&ConnectionRefusal::LABELS);
}

impl Acceptor {
    /// Accepts connections until the drain begins.
    pub(crate) async fn accept_connections(self: Arc<Self>, socket: TcpListener, listener: ListenerSettings) {
        let listener = Arc::new(listener);
        let mut drain = self.drain.subscribe();
        tokio::select! {
            () = self.accept_forever(&socket, &listener) => {}
            _ = drain.wait_for(|begun| *begun) => {}
        }
        if !self.drain.leaves_backlog() {
            self.accept_backlog(socket, &listener);
        }
    }

    /// Without a free slot new connections wait in the kernel's backlog.
    async fn accept_forever(self: &Arc<Self>, socket: &TcpListener, listener: &Arc<ListenerSettings>) {
        while let Ok(permit) = self.connection_slots.acquire().await {
            match socket.accept().await {
                Ok((stream, address)) => self.start(stream, address, self.connection_slots.occupy(permit), listener),
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_ERROR_BACKOFF).await;
                }
            }
        }
    }

    /// Accepts the connections that wait in the kernel's backlog, which closing the listener would reset.
    fn accept_backlog(self: &Arc<Self>, socket: TcpListener, listener: &Arc<ListenerSettings>) {
        let Ok(socket) = socket.into_std() else { return };
        while let Ok(permit) = self.connection_slots.try_acquire() {
            match socket.accept() {
                Ok((stream, address)) => {
                    let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                    if let Ok(stream) = stream {
                        self.start(stream, address, self.connection_slots.occupy(permit), listener);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => return,
            }
        }
    }

    fn start(
        self: &Arc<Self>,
        stream: TcpStream,
        address: SocketAddr,
        occupied: OccupiedSlot,
        listener: &Arc<ListenerSettings>,
    ) {
        let (acceptor, listener, drain) = (self.clone(), listener.clone(), self.drain.subscribe());
        match &listener.proxy_protocol {
            None => {
                let Some(slot) = self.slot(occupied, address.ip()) else { return };
                tokio::spawn(async move {
                    let accepted = AcceptedConnection { transport: transport(stream), address, slot };
                    let opened = Box::pin(acceptor.open(accepted, &listener)).await;
                    acceptor.serve(opened, drain).await;
                });
            }
            Some(proxies) if proxies.contains(address.ip().to_canonical()) => {
                tokio::spawn(async move {
                    let opened = Box::pin(acceptor.open_proxied(transport(stream), address, occupied, &listener)).await;
                    acceptor.serve(opened, drain).await;
                });
            }
            Some(_) => self.count_refused(ConnectionRefusal::UntrustedProxy, address),
        }
    }

    /// The slot of a connection. None if its address has too many: the connection is then closed at once, before a TLS
    /// handshake or a byte of a request is read.
    fn slot(&self, occupied: OccupiedSlot, address: IpAddr) -> Option<ConnectionSlot> {
        let counted = self.connection_limits.open(address);
        if counted.is_none() {
            self.metrics.count_limit_reached("connections_per_address");
            tracing::debug!(client.address = %address, "connection closed: limits.connections_per_address is reached");
        }
        counted.map(|counted| ConnectionSlot::new(occupied, counted))
    }

    fn head_deadline(&self) -> Duration {
        self.limits.load().head.deadline
    }

    fn count_refused(&self, reason: ConnectionRefusal, address: SocketAddr) {
        let reason = reason.as_str();
        self.metrics.count_refused_connection(reason);
        tracing::debug!(client.address = %address.ip(), reason, "connection refused");
    }

    /// Reads which client a load balancer connects for. That client's connections are the ones that are counted.
    async fn read_proxy_header(
        &self,
        mut transport: PlainStream,
        proxy: SocketAddr,
        occupied: OccupiedSlot,
    ) -> Option<AcceptedConnection> {
        let header = tokio::time::timeout(self.head_deadline(), proxy_protocol::read(&mut transport)).await;
        let Ok(Ok((client, behind))) = header else {
            self.count_refused(ConnectionRefusal::ProxyHeader, proxy);
            return None;
        };
        transport.rewind(&behind);
        let address = match client {
            ProxiedClient::Address(address) => address,
            ProxiedClient::LoadBalancer => proxy,
            // An address that nobody has: its forwarding headers are not believed, and no rule's network has it.
            ProxiedClient::Unnamed => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        };
        let slot = self.slot(occupied, address.ip())?;
        Some(AcceptedConnection { transport, address, slot })
    }

    /// Reads which client a load balancer connects for, and opens the connection.
    async fn open_proxied(
        &self,
        transport: PlainStream,
        proxy: SocketAddr,
        occupied: OccupiedSlot,
        listener: &ListenerSettings,
    ) -> Option<Box<Connection>> {
        let accepted = self.read_proxy_header(transport, proxy, occupied).await?;
        self.open(accepted, listener).await
    }

    /// Completes the TLS handshake, if there is one. Its future is boxed: it takes nine kilobytes, which the task of a connection
    /// would hold for as long as the connection lives.
    async fn open(&self, accepted: AcceptedConnection, listener: &ListenerSettings) -> Option<Box<Connection>> {
        let AcceptedConnection { transport, address, slot } = accepted;
        let (stream, protocol) = self.negotiate(transport, address, listener).await?;
        let signal = self.drain.clone();
        Some(Box::new(Connection::new(
            stream,
            protocol,
            address,
            listener.transport,
            &self.limits.load(),
            slot,
            signal,
        )))
    }

    async fn serve(&self, opened: Option<Box<Connection>>, drain: ShutdownWatch) {
        let Some(connection) = opened else { return };
        // One poll leaves the task's waker in the channel, so that an idle connection notices the drain. Polling it
        // with every request would take a lock each time.
        let mut drain_watch = drain.clone();
        let mut drain_begins = pin!(drain_watch.wait_for(|begun| *begun));
        let _ = futures::poll!(drain_begins.as_mut());
        // A connection whose exchange is cut closes here.
        self.app.cutter.run(pin!(self.serve_requests(connection, &drain))).await;
    }

    /// Finds the protocol of a connection: by its TLS handshake, or without TLS by its first bytes where HTTP/2 is accepted.
    /// None if the connection ends.
    async fn negotiate(
        &self,
        mut transport: PlainStream,
        address: SocketAddr,
        listener: &ListenerSettings,
    ) -> Option<(Stream, ALPN)> {
        if let Some(tls) = &listener.tls {
            let stream = self.secure(transport, address, &tls.load_full()).await?;
            let protocol = stream.selected_alpn_proto().unwrap_or(ALPN::H1);
            return Some((stream, protocol));
        }
        let mut protocol = ALPN::H1;
        if listener.accepts_h2c {
            let mut first = [0; HTTP2_PREFACE_START.len()];
            let peeked = tokio::time::timeout(self.head_deadline(), transport.peek(&mut first)).await;
            peeked.ok()?.ok()?;
            if first == *HTTP2_PREFACE_START {
                protocol = ALPN::H2;
            }
        }
        Some((Box::new(transport), protocol))
    }

    /// Completes the TLS handshake. A client that speaks plain HTTP is told so.
    async fn secure(&self, mut transport: PlainStream, address: SocketAddr, tls: &TlsAcceptor) -> Option<Stream> {
        let handshake = async {
            let mut first = [0];
            transport.peek(&mut first).await.map_err(|_| ConnectionRefusal::TlsHandshake)?;
            // A TLS record begins with its type, a small number; a request begins with its method.
            if first[0].is_ascii_alphabetic() {
                refuse_plain_http(transport, address.ip(), first[0], &self.app.refusals).await;
                return Err(ConnectionRefusal::PlainHttp);
            }
            tls.tls_handshake(transport).await.map_err(|_| ConnectionRefusal::TlsHandshake)
        };
        let secured = tokio::time::timeout(TLS_HANDSHAKE_TIMEOUT, handshake).await;
        match secured.unwrap_or(Err(ConnectionRefusal::TlsHandshake)) {
            Ok(secured) => Some(Box::new(secured)),
            Err(reason) => {
                self.count_refused(reason, address);
                None
            }
        }
    }

    /// Serves the requests of a connection. On HTTP/1.1 the fast lane is tried first. Pingora gets the connection only once a whole head
    /// has arrived: one that waits for a request then holds neither Pingora's buffers nor its futures.
    async fn serve_requests(&self, mut connection: Box<Connection>, drain: &ShutdownWatch) {
        if connection.is_http2() {
            // Pingora calls `ProxyApp::process_new_http` for each stream.
            self.app.process_new(connection, drain).await;
            return;
        }
        while let Some(slot) = self.next_request(&mut connection).await {
            if let Some(gateway) = &self.app.fast_lane {
                match gateway.serve_fast(&mut connection, slot.began).await {
                    LaneEnd::KeepAlive => continue,
                    LaneEnd::Close => {
                        // Fails if the client has closed it already. Over TLS, a client that stops reading could delay it.
                        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, connection.shutdown()).await;
                        return;
                    }
                    LaneEnd::Incomplete | LaneEnd::Detached => return,
                    LaneEnd::NotTaken => {}
                }
            }
            let mut exchange = ServerSession::new_http1(connection);
            exchange.set_keepalive((!*drain.borrow()).then_some(KEEPALIVE));
            let Some(reused) = self.app.process_new_http(exchange, drain).await else { return };
            let Ok(reused) = reused.consume().0.into_any().downcast::<Connection>() else { return };
            connection = reused;
        }
    }

    /// Reads the next request and waits for its turn. Returns None if the connection ends.
    ///
    /// While others wait, nothing is read before the turn: the memory of a connection that has waited is no longer in the
    /// core's cache, and so it is fetched once instead of twice.
    async fn next_request(&self, connection: &mut Connection) -> Option<ConcurrencySlot<'_>> {
        let concurrency = &self.app.concurrency;
        if let Some(slot) = concurrency.begin_if_others_wait().await
            && let Some(has_head) = connection.read_head().now_or_never()
        {
            return has_head.then_some(slot);
        }
        if !connection.read_head().await {
            return None;
        }
        let slot = concurrency.begin(|| Urgency::of(connection.path())).await.ok();
        if slot.is_none() {
            self.metrics.count_limit_reached("saturated");
            connection.refuse_overload().await;
        }
        slot
    }
}

/// Prepares an accepted socket. The connection also works without these options.
fn transport(stream: TcpStream) -> PlainStream {
    // Small responses must not wait for Nagle's algorithm.
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT);
    // A WebSocket may be idle for hours; keep-alive finds the ones whose client has vanished.
    if let Err(error) = set_tcp_keepalive(&stream, &tcp_keepalive()) {
        tracing::debug!(%error, "TCP keep-alive not set");
    }
    PlainStream::new(stream)
}

/// Tells a client that speaks plain HTTP that this port expects TLS.
async fn refuse_plain_http(transport: PlainStream, client: IpAddr, first: u8, refusals: &EarlyRefusals) {
    // HEAD is the only method that begins with an H.
    let method: &[u8] = if first == b'H' { b"HEAD " } else { b"" };
    let mut stream: Stream = Box::new(transport);
    let refusal = early_refusal::encode(client, method, &BadRequest::PlainHttp.into(), refusals);
    if stream.write_all(&refusal).await.is_ok() && stream.flush().await.is_ok() {
        linger::close(stream).await;
    }
}
