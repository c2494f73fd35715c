//! What a process gets from another one at its start: listening sockets of the service manager, or sockets and data lock of
//! the gateway that it replaces. Addresses that are missing there are bound here.

use std::io;
use std::net::{SocketAddr, TcpListener as BlockingListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tokio::net::{TcpListener, TcpSocket};

use super::{DataLock, StartError};

/// Connections that the kernel establishes before they are accepted; `net.core.somaxconn` may lower it. More clients than
/// that at once would wait for a retransmission, which takes a second or more.
const BACKLOG: u32 = 4096;

/// Binds an address that no other process has bound for this one.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections of a previous process that still close must not prevent a restart.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Sockets, and the lock of the data directory if the other process held it.
#[derive(Debug, Default)]
pub struct Inherited {
    sockets: Vec<InheritedSocket>,
    pub(super) lock: Option<DataLock>,
}

/// A socket that listens already.
#[derive(Debug)]
pub(super) struct InheritedSocket {
    /// The setting that it belongs to; `None` for every one that names its address.
    key: Option<String>,
    /// The address in that setting, whose port may be 0.
    address: SocketAddr,
    listener: BlockingListener,
}

impl Inherited {
    pub(super) fn add(&mut self, key: Option<String>, address: Option<SocketAddr>, socket: OwnedFd) -> io::Result<()> {
        let listener = BlockingListener::from(socket);
        listener.set_nonblocking(true)?;
        let address = address.map_or_else(|| listener.local_addr(), Ok)?;
        self.sockets.push(InheritedSocket { key, address, listener });
        Ok(())
    }

    /// The socket for an address of a setting.
    pub(super) fn take(&mut self, key: &str, address: SocketAddr) -> Option<TcpListener> {
        let fits = |socket: &InheritedSocket| {
            let is_bound_to = || socket.listener.local_addr().is_ok_and(|local| local == address);
            socket.key.as_ref().is_none_or(|its| its == key) && (socket.address == address || is_bound_to())
        };
        let socket = self.sockets.swap_remove(self.sockets.iter().position(fits)?);
        TcpListener::from_std(socket.listener).ok()
    }

    /// Binds the addresses of settings for which there is no socket, and keeps what it binds with the others.
    pub(super) fn bind_missing(
        &mut self,
        settings: impl IntoIterator<Item = (&'static str, SocketAddr)>,
    ) -> Result<(), StartError> {
        let mut found = Self::default();
        for (key, address) in settings {
            let listener = self.take(key, address).map_or_else(|| bind(address), Ok);
            let kept = listener
                .and_then(TcpListener::into_std)
                .and_then(|listener| found.add(Some(key.to_owned()), Some(address), listener.into()));
            kept.map_err(|source| StartError::Listen { key, address, source })?;
        }
        self.sockets.append(&mut found.sockets);
        Ok(())
    }

    /// The addresses of the sockets that no setting names.
    pub(super) fn unused(&self) -> impl Iterator<Item = SocketAddr> {
        self.sockets.iter().map(|socket| socket.address)
    }
}

/// Duplicates of the listening sockets of this process, for the one that replaces it.
#[derive(Debug, Default)]
pub(super) struct ListeningSockets(Vec<ListeningSocket>);

#[derive(Debug)]
struct ListeningSocket {
    key: &'static str,
    address: SocketAddr,
    socket: OwnedFd,
}

impl ListeningSockets {
    /// Adds a listener by its setting and the address there.
    pub(super) fn add(&mut self, key: &'static str, address: SocketAddr, listener: &TcpListener) -> io::Result<()> {
        let socket = listener.as_fd().try_clone_to_owned()?;
        self.0.push(ListeningSocket { key, address, socket });
        Ok(())
    }

    /// Setting and address of each, in the order of the descriptors.
    pub(super) fn names(&self) -> Vec<(String, SocketAddr)> {
        self.0.iter().map(|socket| (socket.key.to_owned(), socket.address)).collect()
    }

    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.0.iter().map(|socket| socket.socket.as_fd()).collect()
    }

    /// For this process itself, which goes on if the other one has failed.
    pub(super) fn duplicate(&self) -> io::Result<Inherited> {
        let mut inherited = Inherited::default();
        for ListeningSocket { key, address, socket } in &self.0 {
            inherited.add(Some((*key).to_owned()), Some(*address), socket.try_clone()?)?;
        }
        Ok(inherited)
    }
}

#[cfg(test)]
mod tests;
