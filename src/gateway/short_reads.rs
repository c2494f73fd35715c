//! An upstream's transport that is read in short pieces. Pingora reads a response in pieces of up to 64 KiB; a client may
//! hold a hundred HTTP/2 streams that it does not read, each with such a piece.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream, TimingDigest,
    UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes of one read: the payload of one HTTP/2 frame.
pub(super) const PIECE: usize = 16 * 1024;

/// An upstream's transport that is read in pieces of up to [`PIECE`] bytes.
pub(super) struct ShortReads(Stream);

impl ShortReads {
    pub(super) fn wrap(stream: Stream) -> Stream {
        Box::new(Self(stream))
    }

    /// The stream as it was before [`Self::wrap`].
    pub(super) fn unwrap(stream: Stream) -> Option<Stream> {
        stream.into_any().downcast::<Self>().ok().map(|short| short.0)
    }
}

impl AsyncRead for ShortReads {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let most = buffer.remaining().min(PIECE);
        let mut piece = ReadBuf::new(buffer.initialize_unfilled_to(most));
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut piece))?;
        let count = piece.filled().len();
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ShortReads {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl fmt::Debug for ShortReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShortReads")
    }
}

#[async_trait]
impl Shutdown for ShortReads {
    async fn shutdown(&mut self) {
        self.0.shutdown().await;
    }
}

impl UniqueID for ShortReads {
    fn id(&self) -> UniqueIDType {
        self.0.id()
    }
}

impl Ssl for ShortReads {}

impl GetTimingDigest for ShortReads {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.0.get_timing_digest()
    }
}

impl GetProxyDigest for ShortReads {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.0.get_proxy_digest()
    }
}

impl GetSocketDigest for ShortReads {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.0.get_socket_digest()
    }
}

#[async_trait]
impl Peek for ShortReads {}
