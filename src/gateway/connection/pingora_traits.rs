//! The traits that Pingora requires of a transport besides reading and writing. Most of them only delegate to the wrapped
//! transport.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use pingora_core::protocols::l4::socket::SocketAddr;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::tls::SslDigest;
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest, UniqueID,
    UniqueIDType,
};
use pingora_http::ResponseHeader;

use super::Connection;
use super::exchange::StreamOrigin;

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

#[async_trait]
impl Shutdown for Connection {
    async fn shutdown(&mut self) {
        if self.state.is_detaching() {
            return;
        }
        let _ = tokio::io::AsyncWriteExt::flush(self).await;
        if let Some(inner) = &mut self.inner {
            inner.shutdown().await;
        }
    }
}

impl UniqueID for Connection {
    fn id(&self) -> UniqueIDType {
        self.inner.as_ref().map_or(0, |inner| inner.id())
    }
}

impl Ssl for Connection {
    fn get_ssl(&self) -> Option<&pingora_core::protocols::tls::TlsRef> {
        self.inner.as_ref().and_then(|inner| inner.get_ssl())
    }

    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner.as_ref().and_then(|inner| inner.get_ssl_digest())
    }

    /// Without TLS, the acceptor has recognized HTTP/2 by its preface.
    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.http2.as_ref().map(|_| ALPN::H2)
    }
}

impl GetTimingDigest for Connection {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        // Pingora asks once per request and the gateway does not use it.
        Vec::new()
    }
}

/// Tells the streams of an HTTP/2 connection where they come from: they have its digests, but not the connection.
impl GetProxyDigest for Connection {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        let counted = self.slot.as_ref().filter(|_| self.http2.is_some())?.counted().clone();
        let origin = StreamOrigin { counted, transport: self.transport };
        let no_response = ResponseHeader::from(http::Response::new(()).into_parts().0);
        Some(Arc::new(ProxyDigest::new(Box::new(no_response), Some(Box::new(origin)))))
    }
}

impl GetSocketDigest for Connection {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        let inner = self.inner.as_ref()?;
        let digest = self.digest.get_or_init(|| {
            let digest = SocketDigest::from_raw_fd(inner.id());
            // A new digest has no address yet.
            let _ = digest.peer_addr.set(Some(SocketAddr::Inet(self.peer)));
            Arc::new(digest)
        });
        Some(digest.clone())
    }
}

#[async_trait]
impl Peek for Connection {}
