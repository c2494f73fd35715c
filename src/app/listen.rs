//! Binds the listeners and starts to accept connections. Each connection is left to `gateway::accept`, each request on
//! it to Pingora.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpSocket};

use super::StartError;
use super::admin_listener::{self, MetricsPage};
use super::tasks::TaskSet;
use crate::config::{Config, ServerConfig};
use crate::gateway::accept::Acceptor;

/// Bound sockets that do not accept yet.
pub(super) struct Listeners {
    clients: Vec<TcpListener>,
    admin: TcpListener,
}

impl Listeners {
    /// Binds all addresses first, so that a start fails before it touches any data.
    pub(super) fn bind(config: &ServerConfig) -> Result<Self, StartError> {
        let mut clients = Vec::with_capacity(config.listen.len());
        for address in &config.listen {
            clients.push(bind("server.listen", *address)?);
        }
        Ok(Self { clients, admin: bind("server.admin_listen", config.admin_listen)? })
    }

    /// The first client address, with its real port.
    pub(super) fn client_address(&self) -> SocketAddr {
        self.clients.first().map_or(UNKNOWN, local_address)
    }

    pub(super) fn admin_address(&self) -> SocketAddr {
        local_address(&self.admin)
    }

    /// Starts one accept loop per listener.
    pub(super) fn start(self, tasks: &TaskSet, acceptor: Acceptor, metrics: MetricsPage) {
        let acceptor = Arc::new(acceptor);
        tasks.spawn("admin listener", admin_listener::serve(self.admin, Arc::new(metrics)));
        tasks.spawn("concurrency limit", acceptor.app.concurrency.clone().adjust_forever());
        for listener in self.clients {
            tasks.spawn("client listener", acceptor.clone().accept_connections(listener));
        }
    }
}

/// Connections that the kernel establishes before they are accepted; `net.core.somaxconn` may lower it. More clients than
/// that at once would wait for a retransmission, which takes a second or more.
const BACKLOG: u32 = 4096;

fn bind(key: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Connections of a previous process that still close must not prevent a restart.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|source| StartError::Listen { key, address, source })
}

const UNKNOWN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

fn local_address(listener: &TcpListener) -> SocketAddr {
    // A bound listener has an address; this only shows that the kernel did not return it.
    listener.local_addr().unwrap_or(UNKNOWN)
}

/// Replaces port 0 in our own URLs by the port that the first listener got.
pub(super) fn fill_ports(config: &mut Config, port: u16) {
    let clients = &mut config.clients;
    for url in [&mut config.server.public_url, &mut clients.h5, &mut clients.itagent, &mut clients.itadmin] {
        if url.port() == Some(0) {
            // Fails only for a URL without a host, which the configuration refuses.
            let _ = url.set_port(Some(port));
        }
    }
}
