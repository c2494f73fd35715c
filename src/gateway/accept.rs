//! Where connections come in: accepts them, speaks TLS where it is set up, and hands them to the engine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pingora_core::apps::ServerApp;
use pingora_core::listeners::tls::Acceptor as TlsAcceptor;
use pingora_core::protocols::l4::socket::SocketAddr as EngineAddress;
use pingora_core::protocols::l4::stream::Stream as TcpTransport;
use pingora_core::protocols::{GetSocketDigest, SocketDigest, Stream, TcpKeepalive};
use pingora_proxy::HttpProxy;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::Gateway;
use super::connection::{Connection, HeadLimits};

/// For a TLS handshake; longer ones hold a connection's place for nothing.
const TLS_HANDSHAKE: Duration = Duration::from_secs(10);

/// How long to wait when no connection can be accepted, such as without free file descriptors.
const BREATHER: Duration = Duration::from_millis(50);

/// After a minute without a byte the kernel asks whether the other side is still there, six times.
pub fn keepalive() -> TcpKeepalive {
    TcpKeepalive {
        idle: Duration::from_secs(60),
        interval: Duration::from_secs(10),
        count: 6,
        user_timeout: Duration::ZERO,
    }
}

/// Everything that a new connection needs.
pub struct Acceptor {
    /// The engine.
    pub proxy: Arc<HttpProxy<Gateway>>,
    /// Speaks TLS, if we do.
    pub tls: Option<Arc<TlsAcceptor>>,
    /// For heads.
    pub limits: HeadLimits,
    /// Places for connections.
    pub places: Arc<Semaphore>,
}

impl Acceptor {
    /// Accepts connections until `shutdown` says stop.
    pub async fn open(self: Arc<Self>, listener: TcpListener, mut shutdown: watch::Receiver<bool>) {
        loop {
            let place = tokio::select! {
                place = self.places.clone().acquire_owned() => place,
                _ = shutdown.wait_for(|stop| *stop) => return,
            };
            let Ok(place) = place else { return };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = shutdown.wait_for(|stop| *stop) => return,
            };
            match accepted {
                Ok((stream, address)) => {
                    let (door, shutdown) = (self.clone(), shutdown.clone());
                    tokio::spawn(async move {
                        door.serve(stream, address, place, &shutdown).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(BREATHER).await;
                }
            }
        }
    }

    async fn serve(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        place: OwnedSemaphorePermit,
        shutdown: &watch::Receiver<bool>,
    ) {
        // Small answers must not wait for more; a connection that refuses the option works all the same.
        let _ = stream.set_nodelay(true);
        let digest = SocketDigest::from_raw_fd(std::os::fd::AsRawFd::as_raw_fd(&stream));
        let _ = digest.peer_addr.set(Some(EngineAddress::Inet(address)));
        let mut transport = TcpTransport::from(stream);
        transport.set_socket_digest(digest);
        // A socket may be idle for hours; one whose client has vanished must not stay for ever.
        if let Err(error) = transport.set_keepalive(&keepalive()) {
            tracing::debug!(%error, "no TCP keep-alive");
        }
        let transport: Stream = match &self.tls {
            None => Box::new(transport),
            Some(tls) => match tokio::time::timeout(TLS_HANDSHAKE, tls.tls_handshake(transport)).await {
                Ok(Ok(secured)) => Box::new(secured),
                Ok(Err(_)) | Err(_) => {
                    tracing::debug!(client.address = %address.ip(), "no TLS handshake");
                    return;
                }
            },
        };
        let connection: Stream = Box::new(Connection::new(transport, self.limits, place));
        self.proxy.process_new(connection, shutdown).await;
    }
}
