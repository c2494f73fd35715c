//! A TCP connection, of a client or to an upstream. Pingora's own type for it adds buffers, digests and clocks that the gateway does not
//! use: most of a kilobyte for each end of an open WebSocket, and two readings of the clock for each wait.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest, UniqueID,
    UniqueIDType,
};
use rustix::buffer::spare_capacity;
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::buffer::{Buffer, CAPACITY};

/// The most bytes of a small read: of a request head, or of a short response.
const SMALL_READ: usize = CAPACITY;

thread_local! {
    /// Memory for one read; its content does not outlive the poll.
    static SMALL: RefCell<[u8; SMALL_READ]> = const { RefCell::new([0; SMALL_READ]) };
}

/// A TCP connection.
pub(super) struct PlainStream {
    tcp: TcpStream,
    /// What was read and put back, to be read again first.
    rewound: Vec<u8>,
}

/// How many bytes a system call has moved, and how many it could have moved.
struct Moved {
    count: usize,
    most: usize,
}

impl PlainStream {
    pub(super) fn new(tcp: TcpStream) -> Self {
        Self { tcp, rewound: Vec::new() }
    }

    /// Puts bytes back, to be read before all others.
    pub(super) fn rewind(&mut self, bytes: &[u8]) {
        self.rewound.splice(..0, bytes.iter().copied());
    }

    /// Whether the other end has neither sent anything nor closed the connection, as far as tokio has been told by the kernel: without a
    /// system call if nothing was reported, so what came a moment ago may be missed. If not, a byte may have been read and dropped, so
    /// the connection must be closed.
    pub(super) fn has_nothing_to_read(&self) -> bool {
        let is_blocked = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        self.rewound.is_empty() && self.tcp.try_read(&mut [0]).is_err_and(is_blocked)
    }

    /// Waits for the first bytes and leaves them to be read.
    pub(super) async fn peek(&mut self, first: &mut [u8]) -> io::Result<()> {
        self.read_exact(first).await?;
        self.rewind(first);
        Ok(())
    }

    /// Whether bytes that were put back are to be read first.
    pub(super) fn has_rewound(&self) -> bool {
        !self.rewound.is_empty()
    }

    /// Reads from the socket and appends to a buffer. A buffer without memory stays without if no bytes have arrived.
    pub(super) fn poll_extend(&self, buffer: &mut Buffer, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let had_memory = buffer.capacity() > 0;
        let received = self.poll_system_call(cx, Interest::READABLE, |tcp| {
            buffer.make_room();
            let room = buffer.capacity() - buffer.len();
            // Also sets the buffer's length.
            let (_, count) = rustix::net::recv(tcp, spare_capacity(buffer), RecvFlags::empty())?;
            Ok(Moved { count, most: room })
        });
        if received.is_pending() && !had_memory {
            *buffer = Buffer::default();
        }
        received
    }

    /// Reads from the socket. A small read goes through memory of the thread, which need not be cleared each time.
    fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buffer.remaining() > SMALL_READ {
            return Pin::new(&mut self.tcp).poll_read(cx, buffer);
        }
        SMALL.with_borrow_mut(|memory| {
            let memory = &mut memory[..buffer.remaining()];
            let count = ready!(self.poll_system_call(cx, Interest::READABLE, |tcp| {
                let (_, count) = rustix::net::recv(tcp, &mut *memory, RecvFlags::empty())?;
                Ok(Moved { count, most: memory.len() })
            }))?;
            buffer.put_slice(&memory[..count]);
            Poll::Ready(Ok(()))
        })
    }

    /// Sends or receives by a direct system call: those of glibc are cancellation points, which cost two more atomic instructions in a
    /// process with threads. A call that moves less than it could has emptied or filled the socket's buffer, so the readiness is cleared
    /// as if it had blocked. At the end of the stream it stays, because every further read ends there as well.
    fn poll_system_call(
        &self,
        cx: &mut Context<'_>,
        interest: Interest,
        mut call: impl FnMut(&TcpStream) -> rustix::io::Result<Moved>,
    ) -> Poll<io::Result<usize>> {
        let mut has_blocked = false;
        loop {
            match interest {
                Interest::READABLE => ready!(self.tcp.poll_read_ready(cx))?,
                // A socket is nearly always ready to be written, so it is tried first. That does not count for the budget after which a task
                // must yield; the read that the bytes come from does.
                _ if has_blocked => ready!(self.tcp.poll_write_ready(cx))?,
                _ => {}
            }
            let mut moved = None;
            let blocked = self.tcp.try_io(interest, || {
                let Moved { count, most } = call(&self.tcp)?;
                moved = Some(count);
                if (1..most).contains(&count) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match (moved, blocked) {
                (Some(count), _) => return Poll::Ready(Ok(count)),
                (None, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => return Poll::Ready(Err(error)),
                (None, _) => has_blocked = true,
            }
        }
    }
}

impl fmt::Debug for PlainStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlainStream")
    }
}

impl AsyncRead for PlainStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.rewound.is_empty() {
            return this.poll_receive(cx, buffer);
        }
        let count = this.rewound.len().min(buffer.remaining());
        buffer.put_slice(&this.rewound[..count]);
        this.rewound.drain(..count);
        if this.rewound.is_empty() {
            this.rewound = Vec::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PlainStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_system_call(cx, Interest::WRITABLE, |tcp| {
            let count = rustix::net::send(tcp, bytes, SendFlags::NOSIGNAL)?;
            Ok(Moved { count, most: bytes.len() })
        })
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tcp).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    /// There is no buffer to flush.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(cx)
    }
}

#[async_trait]
impl Shutdown for PlainStream {
    async fn shutdown(&mut self) {
        // Fails if the other end has closed the connection.
        let _ = self.tcp.shutdown().await;
    }
}

impl UniqueID for PlainStream {
    fn id(&self) -> UniqueIDType {
        self.tcp.as_raw_fd()
    }
}

impl Ssl for PlainStream {}

impl GetTimingDigest for PlainStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for PlainStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

/// The connection of a client has a digest, see `connection`.
impl GetSocketDigest for PlainStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        None
    }
}

#[async_trait]
impl Peek for PlainStream {}

#[cfg(test)]
mod tests;
