//! The stream beneath a connection: plain or within TLS, the same to whoever reads and writes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::tls::Place;

/// A connected stream.
pub enum Stream {
    /// TCP itself.
    Plain(TcpStream),
    /// TLS on top of it.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Connects, and shakes hands where TLS is spoken.
    pub async fn connect(place: &Place) -> io::Result<Stream> {
        let stream = TcpStream::connect(place.address).await?;
        stream.set_nodelay(true)?;
        match &place.trust {
            None => Ok(Stream::Plain(stream)),
            Some(trust) => Ok(Stream::Tls(Box::new(trust.secure(stream).await?))),
        }
    }

    /// The socket beneath.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref().0,
        }
    }

    /// The certificate that the server showed, if it showed one.
    pub fn certificate(&self) -> Option<Vec<u8>> {
        match self {
            Stream::Plain(_) => None,
            Stream::Tls(stream) => stream.get_ref().1.peer_certificates()?.first().map(|shown| shown.to_vec()),
        }
    }

    /// The protocol that was agreed on (ALPN).
    pub fn protocol(&self) -> Option<Vec<u8>> {
        match self {
            Stream::Plain(_) => None,
            Stream::Tls(stream) => stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec),
        }
    }

    /// Both directions apart.
    pub fn into_split(self) -> (ReadHalf<Stream>, WriteHalf<Stream>) {
        tokio::io::split(self)
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Stream {
        Stream::Plain(stream)
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
