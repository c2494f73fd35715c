//! Binds the listeners and starts to accept connections. Each connection is left to `gateway::accept`, each request on
//! it to Pingora.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use url::Url;

use super::StartError;
use super::admin_listener::{self, AdminPages};
use super::inherited::{Inherited, ListeningSockets, bind};
use super::tasks::TaskSet;
use super::tls::Certificates;
use crate::config::{Config, ListenerConfig, ServerConfig};
use crate::gateway::accept::{Acceptor, ListenerSettings};
use crate::pipeline::client_address::TrustedProxies;
use crate::pipeline::head::Transport;

/// Bound sockets that do not accept yet.
pub(super) struct Listeners {
    clients: Vec<ClientListener>,
    admin: TcpListener,
    /// Duplicates of all of them, for a hand-over.
    sockets: ListeningSockets,
}

/// A bound client address and its settings.
struct ClientListener {
    socket: TcpListener,
    config: ListenerConfig,
}

impl Listeners {
    /// Binds all addresses, before the start opens any database. Those that another process has bound for this one are taken
    /// over.
    pub(super) fn bind(config: &ServerConfig, inherited: &mut Inherited) -> Result<Self, StartError> {
        let mut sockets = ListeningSockets::default();
        let mut open = |key: &'static str, address: SocketAddr| {
            let listener = inherited.take(key, address).map_or_else(|| bind(address), Ok);
            let listener = listener.and_then(|listener| sockets.add(key, address, &listener).map(|()| listener));
            listener.map_err(|source| StartError::Listen { key, address, source })
        };
        let mut clients = Vec::new();
        for listener in config.client_listeners() {
            let socket = open(setting_of(&listener, config), listener.address)?;
            clients.push(ClientListener { socket, config: listener });
        }
        let admin = open(ADMIN_SETTING, config.admin_listen)?;
        Ok(Self { clients, admin, sockets })
    }

    /// Duplicates of all sockets, for a hand-over.
    pub(super) fn take_sockets(&mut self) -> ListeningSockets {
        std::mem::take(&mut self.sockets)
    }

    /// The client addresses with their real ports.
    pub(super) fn client_addresses(&self) -> Vec<SocketAddr> {
        self.clients.iter().map(|client| local_address(&client.socket)).collect()
    }

    /// The port of the first listener that serves a scheme, or else of the first one.
    fn port_for(&self, scheme: &str) -> u16 {
        let serves = |client: &&ClientListener| client.config.tls == (scheme == "https");
        let listener = self.clients.iter().find(serves).or(self.clients.first());
        listener.map_or(0, |client| local_address(&client.socket).port())
    }

    pub(super) fn admin_address(&self) -> SocketAddr {
        local_address(&self.admin)
    }

    /// Starts one accept loop per listener.
    pub(super) fn start(
        self,
        tasks: &TaskSet,
        acceptor: &Arc<Acceptor>,
        certificates: &Certificates,
        proxies: &TrustedProxies,
        pages: AdminPages,
    ) {
        tasks.spawn("admin listener", admin_listener::serve(self.admin, Arc::new(pages)));
        tasks.spawn("concurrency limit", acceptor.app.concurrency.clone().adjust_forever());
        for ClientListener { socket, config } in self.clients {
            let settings = ListenerSettings {
                tls: certificates.acceptor(&config),
                accepts_h2c: config.h2c,
                proxy_protocol: config.proxy_protocol.then(|| proxies.clone()),
                transport: transport(&config),
            };
            tasks.spawn("client listener", acceptor.clone().accept_connections(socket, settings));
        }
    }
}

const ADMIN_SETTING: &str = "server.admin_listen";

/// The setting that names a client listener.
fn setting_of(listener: &ListenerConfig, config: &ServerConfig) -> &'static str {
    if config.listeners.contains(listener) { "server.listeners" } else { "server.listen" }
}

/// Binds the addresses that the process to be replaced does not pass on. If one is not free, that process is not disturbed.
pub(super) fn bind_missing(config: &Config, inherited: &mut Inherited) -> Result<(), StartError> {
    let server = &config.server;
    let clients =
        server.client_listeners().into_iter().map(|listener| (setting_of(&listener, server), listener.address));
    inherited.bind_missing(clients.chain([(ADMIN_SETTING, server.admin_listen)]))
}

/// How requests on a listener arrive.
fn transport(config: &ListenerConfig) -> Transport {
    match config {
        ListenerConfig { tls: true, .. } => Transport::Tls,
        ListenerConfig { redirect: true, .. } => Transport::Redirected,
        ListenerConfig { .. } => Transport::Plain,
    }
}

const UNKNOWN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

fn local_address(listener: &TcpListener) -> SocketAddr {
    // A bound listener has an address; this only shows that the kernel did not return it.
    listener.local_addr().unwrap_or(UNKNOWN)
}

/// The first client address.
pub(super) fn first(addresses: &[SocketAddr]) -> SocketAddr {
    addresses.first().copied().unwrap_or(UNKNOWN)
}

/// Replaces port 0 in our own URLs by the ports of a configuration in force.
pub(super) fn keep_ports(config: &mut Config, in_force: &Config) {
    for (url, current) in own_urls(config).into_iter().zip(own_urls(&mut in_force.clone())) {
        if url.port() == Some(0) {
            // Fails only for a URL without a host, which the configuration refuses.
            let _ = url.set_port(current.port());
        }
    }
}

fn own_urls(config: &mut Config) -> [&mut Url; 4] {
    let clients = &mut config.clients;
    [&mut config.server.public_url, &mut clients.h5, &mut clients.itagent, &mut clients.itadmin]
}

/// Replaces port 0 in our own URLs by the port of the first listener that serves their scheme.
pub(super) fn fill_ports(config: &mut Config, listeners: &Listeners) {
    for url in own_urls(config) {
        if url.port() == Some(0) {
            let _ = url.set_port(Some(listeners.port_for(url.scheme())));
        }
    }
}
