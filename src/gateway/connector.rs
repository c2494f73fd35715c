//! Opens connections to the addresses of upstreams, over TCP or TLS, for HTTP/1.1 and HTTP/2, and keeps idle ones. Which address
//! is tried, and how often, is left to [`connect`](super::connect); which idle connection is used, to `idle_pool`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use pingora_core::connectors::http::v2::Connector as Http2Connector;
use pingora_core::connectors::{ConnectorOptions, TransportConnector};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::client::HttpSession as AnySession;
use pingora_core::protocols::http::v2::client::Http2Session;
use pingora_core::protocols::l4::ext;
use pingora_core::protocols::l4::socket::SocketAddr as PingoraAddress;
use pingora_core::upstreams::peer::{ALPN, HttpPeer, Peer};
use pingora_core::{Error as PingoraError, ErrorType};
use tokio::runtime::Handle;

use super::failure::internal_error;
use super::idle_pool::{self, IdlePool, PooledConnection};
use super::plain_stream::PlainStream;
use crate::config::UpstreamProtocol;
use crate::upstreams::Address;

/// Where a connection to an upstream comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ConnectionSource {
    /// The pool of idle connections, or a new connection if the pool has none.
    #[default]
    Pool,
    /// A new connection.
    New,
}

/// What a lane sends its request over.
pub(super) enum UpstreamTransport {
    /// A connection for HTTP/1.1.
    Http1(PooledConnection),
    /// An exchange over HTTP/2.
    Http2(SharedStream),
}

impl UpstreamTransport {
    /// The connection for HTTP/1.1 of a lane that asked for one.
    pub(super) fn into_connection(self) -> pingora_core::Result<PooledConnection> {
        match self {
            Self::Http1(connection) => Ok(connection),
            Self::Http2(_) => Err(internal_error("an HTTP/2 exchange in a lane for HTTP/1.1")),
        }
    }
}

/// An exchange on an HTTP/2 connection that others share. The connection returns to the pool when the exchange ends, also if that
/// is early.
pub(super) struct SharedStream {
    /// None only while it is dropped.
    session: Option<Box<Http2Session>>,
    connector: Arc<Http2Connector>,
    address: Arc<Address>,
}

impl SharedStream {
    pub(super) fn session(&mut self) -> pingora_core::Result<&mut Http2Session> {
        self.session.as_deref_mut().ok_or_else(|| internal_error("an HTTP/2 exchange that has ended"))
    }
}

impl Drop for SharedStream {
    fn drop(&mut self) {
        // The pool starts a task, which it cannot while the process ends.
        if let Some(session) = self.session.take()
            && Handle::try_current().is_ok()
        {
            let peer = &self.address.peer;
            self.connector.release_http_session(*session, peer, peer.idle_timeout());
        }
    }
}

/// Connects every lane to its upstreams, and pools idle connections.
pub(crate) struct UpstreamConnector {
    streams: TransportConnector,
    idle: Arc<IdlePool>,
    http2: Arc<Http2Connector>,
}

impl UpstreamConnector {
    /// Keeps up to `pool_size` idle connections of each kind, on `threads` threads.
    pub(crate) fn new(threads: usize, pool_size: usize) -> Self {
        let options = ConnectorOptions::new(pool_size);
        Self {
            streams: TransportConnector::new(Some(options.clone())),
            idle: Arc::new(IdlePool::new(threads, pool_size)),
            http2: Arc::new(Http2Connector::new(Some(options))),
        }
    }

    /// Connects to a peer, or takes a connection to it from the pool, in an attempt that began at `now`. Returns where the connection
    /// comes from.
    pub(super) async fn open(
        &self,
        address: &Arc<Address>,
        source: ConnectionSource,
        protocol: UpstreamProtocol,
        now: Instant,
    ) -> pingora_core::Result<(UpstreamTransport, ConnectionSource)> {
        let peer = &address.peer;
        let (transport, reused) = match (protocol, source) {
            (UpstreamProtocol::Http1, source) => {
                let pooled = match source {
                    ConnectionSource::Pool => self.idle.take(address.pool_key, now),
                    ConnectionSource::New => None,
                };
                match pooled {
                    Some(connection) => (UpstreamTransport::Http1(connection), true),
                    None => {
                        // Boxed, so that the future of a request that finds a pooled connection stays small.
                        let stream = Box::pin(self.new_stream(peer)).await?;
                        (UpstreamTransport::Http1(PooledConnection::new(stream)), false)
                    }
                }
            }
            (UpstreamProtocol::Http2, source) => {
                let (session, reused) = Box::pin(self.http2_session(peer, source)).await?;
                let (connector, address) = (self.http2.clone(), address.clone());
                (UpstreamTransport::Http2(SharedStream { session: Some(session), connector, address }), reused)
            }
        };
        Ok((transport, if reused { ConnectionSource::Pool } else { ConnectionSource::New }))
    }

    /// Keeps a connection for HTTP/1.1, which has been idle since `now`.
    pub(super) fn pool(&self, connection: PooledConnection, address: &Address, now: Instant) {
        let until = address.peer.idle_timeout().map(|idle| now + idle);
        self.idle.put(address.pool_key, connection, until);
    }

    /// Closes idle connections for HTTP/1.1 that cannot be used again, for as long as the process runs.
    pub(crate) fn sweep(&self) -> impl Future<Output = ()> + Send + 'static {
        let idle = self.idle.clone();
        async move {
            loop {
                tokio::time::sleep(idle_pool::SWEEP_INTERVAL).await;
                idle.sweep();
            }
        }
    }

    /// A new connection for HTTP/1.1, also to a peer that otherwise gets HTTP/2.
    async fn new_stream(&self, peer: &HttpPeer) -> pingora_core::Result<Stream> {
        if let (PingoraAddress::Inet(address), false) = (peer.address(), peer.tls()) {
            return Ok(Box::new(connect_plain(peer, address).await?));
        }
        if peer.options.alpn == ALPN::H1 {
            return self.streams.new_stream(peer).await;
        }
        let mut peer = peer.clone();
        peer.options.alpn = ALPN::H1;
        self.streams.new_stream(&peer).await
    }

    async fn http2_session(
        &self,
        peer: &HttpPeer,
        source: ConnectionSource,
    ) -> pingora_core::Result<(Box<Http2Session>, bool)> {
        if source == ConnectionSource::Pool
            && let Ok(Some(session)) = self.http2.reused_http_session(peer).await
        {
            return Ok((Box::new(session), true));
        }
        match self.http2.new_http_session::<_, ()>(peer).await? {
            AnySession::H2(session) => Ok((Box::new(session), false)),
            AnySession::H1(_) | AnySession::Custom(()) => {
                PingoraError::e_explain(ErrorType::HandshakeError, "the upstream does not offer HTTP/2")
            }
        }
    }
}

/// Connects to an address without TLS.
async fn connect_plain(peer: &HttpPeer, address: &SocketAddr) -> pingora_core::Result<PlainStream> {
    let connecting = ext::connect(address, None);
    let connected = match peer.connection_timeout() {
        Some(limit) => pingora_timeout::timeout(limit, connecting)
            .await
            .map_err(|_| PingoraError::explain(ErrorType::ConnectTimedout, "connecting to the upstream"))?,
        None => connecting.await,
    };
    let tcp = connected.map_err(|mut error| {
        // No fault of the upstream.
        if matches!(error.etype(), ErrorType::SocketError | ErrorType::BindError) {
            error.etype = ErrorType::InternalError;
        }
        error
    })?;
    // The connection also works without these options.
    let _ = tcp.set_nodelay(true);
    if let Some(keepalive) = peer.tcp_keepalive() {
        let _ = ext::set_tcp_keepalive(&tcp, keepalive);
    }
    Ok(PlainStream::new(tcp))
}
