//! Accepts client connections, completes the TLS handshake where TLS is configured and passes them to Pingora: on HTTP/1.1
//! for each request, on HTTP/2 for good. Reading heads is left to [`connection`](super::connection), their turn to
//! [`concurrency`](super::concurrency).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use pingora_core::apps::{HttpServerApp, ServerApp};
use pingora_core::listeners::tls::Acceptor as TlsAcceptor;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::l4::socket::SocketAddr as PingoraAddress;
use pingora_core::protocols::l4::stream::Stream as TcpTransport;
use pingora_core::protocols::{GetSocketDigest, SocketDigest, Stream};
use pingora_core::server::ShutdownWatch;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::concurrency::ConcurrencySlot;
use super::connection::{ClientLimits, Connection};
use super::connection_limits::{ConnectionLimits, ConnectionSlot};
use super::drain_signal::DrainSignal;
use super::keepalive::tcp_keepalive;
use super::proxy_app::ProxyApp;
use crate::metrics::Metrics;

/// A slower client would hold a connection slot without sending a request.
const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

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
    /// None on plain HTTP.
    pub(crate) tls: Option<Arc<TlsAcceptor>>,
    pub(crate) limits: ClientLimits,
    /// One permit per open client connection, WebSockets included.
    pub(crate) connection_slots: Arc<Semaphore>,
    /// The connections of each address.
    pub(crate) connection_limits: Arc<ConnectionLimits>,
    pub(crate) drain: Arc<DrainSignal>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Acceptor {
    /// Accepts connections until the drain begins.
    pub(crate) async fn accept_connections(self: Arc<Self>, listener: TcpListener) {
        let mut drain = self.drain.subscribe();
        tokio::select! {
            () = self.accept_forever(&listener) => {}
            _ = drain.wait_for(|begun| *begun) => {}
        }
        self.accept_backlog(listener);
    }

    /// Without a free slot new connections wait in the kernel's backlog.
    async fn accept_forever(self: &Arc<Self>, listener: &TcpListener) {
        while let Ok(permit) = self.connection_slots.clone().acquire_owned().await {
            match listener.accept().await {
                Ok((stream, address)) => self.start(stream, address, permit),
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_ERROR_BACKOFF).await;
                }
            }
        }
    }

    /// Accepts the connections that wait in the kernel's backlog, which closing the listener would reset.
    fn accept_backlog(self: &Arc<Self>, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else { return };
        while let Ok(permit) = self.connection_slots.clone().try_acquire_owned() {
            match listener.accept() {
                Ok((stream, address)) => {
                    let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                    if let Ok(stream) = stream {
                        self.start(stream, address, permit);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => return,
            }
        }
    }

    fn start(self: &Arc<Self>, stream: TcpStream, address: SocketAddr, permit: OwnedSemaphorePermit) {
        if let Some(slot) = self.slot(permit, address.ip()) {
            let (acceptor, drain) = (self.clone(), self.drain.subscribe());
            tokio::spawn(async move { acceptor.serve(stream, address, slot, drain).await });
        }
    }

    /// The slot of a connection. None if its address has too many: the connection is then closed at once, before a TLS
    /// handshake or a byte of a request is read.
    fn slot(&self, permit: OwnedSemaphorePermit, address: IpAddr) -> Option<ConnectionSlot> {
        let counted = self.connection_limits.open(address);
        if counted.is_none() {
            self.metrics.count_limit_reached("connections_per_address");
            tracing::debug!(client.address = %address, "connection closed: limits.connections_per_address is reached");
        }
        counted.map(|counted| ConnectionSlot::new(permit, counted))
    }

    async fn serve(&self, stream: TcpStream, address: SocketAddr, slot: ConnectionSlot, drain: ShutdownWatch) {
        // Small responses must not wait for Nagle's algorithm; the connection also works without the option.
        let _ = stream.set_nodelay(true);
        #[cfg(target_os = "linux")]
        let _ = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT);
        let digest = SocketDigest::from_raw_fd(std::os::fd::AsRawFd::as_raw_fd(&stream));
        let _ = digest.peer_addr.set(Some(PingoraAddress::Inet(address)));
        let mut transport = TcpTransport::from(stream);
        transport.set_socket_digest(digest);
        // A WebSocket may be idle for hours; keep-alive finds the ones whose client has vanished.
        if let Err(error) = transport.set_keepalive(&tcp_keepalive()) {
            tracing::debug!(%error, "TCP keep-alive not set");
        }
        let transport: Stream = match &self.tls {
            None => Box::new(transport),
            Some(tls) => match tokio::time::timeout(TLS_HANDSHAKE_TIMEOUT, tls.tls_handshake(transport)).await {
                Ok(Ok(secured)) => Box::new(secured),
                Ok(Err(_)) | Err(_) => {
                    tracing::debug!(client.address = %address.ip(), "TLS handshake failed");
                    return;
                }
            },
        };
        let connection = Box::new(Connection::new(transport, &self.limits, slot, self.drain.clone()));
        // One poll leaves the task's waker in the channel, so that an idle connection notices the drain. Polling it
        // with every request would take a lock each time.
        let mut waker = drain.clone();
        let mut drain_begins = pin!(waker.wait_for(|begun| *begun));
        let _ = futures::poll!(drain_begins.as_mut());
        // A connection whose exchange is cut closes here.
        self.app.cutter.run(self.serve_requests(connection, &drain)).await;
    }

    /// Serves the requests of a connection. On HTTP/1.1, Pingora gets it only once a whole head has arrived: a connection
    /// that waits for a request then holds neither Pingora's buffers nor its futures.
    async fn serve_requests(&self, mut connection: Box<Connection>, drain: &ShutdownWatch) {
        if connection.is_http2() {
            self.app.process_new(connection, drain).await;
            return;
        }
        while let Some(_slot) = self.next_request(&mut connection).await {
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
    async fn next_request(&self, connection: &mut Connection) -> Option<ConcurrencySlot> {
        let concurrency = &self.app.concurrency;
        if let Some(slot) = concurrency.begin_if_others_wait().await
            && let Some(has_head) = connection.read_head().now_or_never()
        {
            return has_head.then_some(slot);
        }
        if !connection.read_head().await {
            return None;
        }
        let slot = concurrency.begin().await.ok();
        if slot.is_none() {
            self.metrics.count_limit_reached("saturated");
            connection.refuse_overload().await;
        }
        slot
    }
}
