//! A TCP stream with or without TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::eventually;
use super::tls::ServerAddress;

/// A connected stream.
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Connects, with a TLS handshake if the server uses TLS.
    pub async fn connect(server: &ServerAddress) -> io::Result<Stream> {
        let stream = TcpStream::connect(server.address).await?;
        stream.set_nodelay(true)?;
        match &server.client_tls {
            None => Ok(Stream::Plain(stream)),
            Some(client_tls) => Ok(Stream::Tls(Box::new(client_tls.connect(stream).await?))),
        }
    }

    /// The TCP socket.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref().0,
        }
    }

    /// Waits until the kernel has delivered what was sent to the peer's socket, whether the peer reads it or not.
    pub async fn until_delivered(&self) {
        let port = format!(":{:04X}", self.socket().local_addr().expect("an address").port());
        eventually("the delivery", || async {
            let sockets = std::fs::read_to_string("/proc/net/tcp").expect("the sockets of IPv4");
            let mut sockets = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let socket = sockets.find(|fields| fields.len() > 4 && fields[1].ends_with(&port)).expect("an open stream");
            // The bytes that are not acknowledged, a colon, and those that are not read.
            socket[4].starts_with("00000000:").then_some(())
        })
        .await;
    }

    /// The server's certificate.
    pub fn certificate(&self) -> Option<Vec<u8>> {
        match self {
            Stream::Plain(_) => None,
            Stream::Tls(stream) => {
                stream.get_ref().1.peer_certificates()?.first().map(|certificate| certificate.to_vec())
            }
        }
    }

    /// The negotiated protocol (ALPN).
    pub fn protocol(&self) -> Option<Vec<u8>> {
        match self {
            Stream::Plain(_) => None,
            Stream::Tls(stream) => stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec),
        }
    }

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
