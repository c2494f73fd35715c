//! The peer of an address: everything that Pingora's connectors need to know about it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use pingora_core::upstreams::peer::{ALPN, HttpPeer};

use super::keepalive::tcp_keepalive;
use crate::config::{UpstreamConfig, UpstreamProtocol};

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

/// The most exchanges on one HTTP/2 connection.
const HTTP2_STREAMS: usize = 100;

/// What an upstream may send of one response before the client has taken it, and of all responses on a connection: clients
/// that read nothing do not stop the others.
const HTTP2_STREAM_WINDOW: u32 = 64 * 1024;
const HTTP2_CONNECTION_WINDOW: u32 = 8 * 1024 * 1024;

/// How often an HTTP/2 connection is probed; one without an answer is closed.
const HTTP2_PING: Duration = Duration::from_secs(10);

/// Builds the peer of an address; None if the path of a Unix socket is not usable as one.
pub(super) fn peer(address: &ResolvedAddress, config: &UpstreamConfig) -> Option<HttpPeer> {
    let mut peer = match address {
        ResolvedAddress::Socket(address) => HttpPeer::new(*address, false, String::new()),
        ResolvedAddress::Unix(path) => HttpPeer::new_uds(path.to_str()?, false, String::new()).ok()?,
    };
    if config.protocol == UpstreamProtocol::Http2 {
        peer.options.alpn = ALPN::H2;
        peer.options.max_h2_streams = HTTP2_STREAMS;
        peer.options.h2_stream_window_size = Some(HTTP2_STREAM_WINDOW);
        peer.options.h2_connection_window_size = Some(HTTP2_CONNECTION_WINDOW);
        peer.options.h2_ping_interval = Some(HTTP2_PING);
    }
    peer.options.connection_timeout = Some(config.connect_timeout.get());
    peer.options.total_connection_timeout = Some(config.connect_timeout.get());
    peer.options.read_timeout = Some(config.answer_timeout.get());
    peer.options.write_timeout = Some(config.answer_timeout.get());
    peer.options.idle_timeout = Some(config.idle.get());
    peer.options.tcp_keepalive = Some(tcp_keepalive());
    Some(peer)
}
