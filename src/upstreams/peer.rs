//! The peer of an address: everything that Pingora's connectors need to know about it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use pingora_core::upstreams::peer::HttpPeer;

use super::keepalive::tcp_keepalive;
use crate::config::UpstreamConfig;

/// The last addresses of each name and port.
pub(super) type ResolvedNames = BTreeMap<(String, u16), Vec<SocketAddr>>;

/// An address after name resolution.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ResolvedAddress {
    Socket(SocketAddr),
    Unix(PathBuf),
}

impl std::fmt::Display for ResolvedAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Builds the peer of an address; None if the path of a Unix socket is not usable as one.
pub(super) fn peer(address: &ResolvedAddress, config: &UpstreamConfig) -> Option<HttpPeer> {
    let mut peer = match address {
        ResolvedAddress::Socket(address) => HttpPeer::new(*address, false, String::new()),
        ResolvedAddress::Unix(path) => HttpPeer::new_uds(path.to_str()?, false, String::new()).ok()?,
    };
    peer.options.connection_timeout = Some(config.connect_timeout.get());
    peer.options.total_connection_timeout = Some(config.connect_timeout.get());
    peer.options.read_timeout = Some(config.answer_timeout.get());
    peer.options.write_timeout = Some(config.answer_timeout.get());
    peer.options.idle_timeout = Some(config.idle.get());
    peer.options.tcp_keepalive = Some(tcp_keepalive());
    Some(peer)
}
