//! The configured upstreams: their peers in round-robin order, their timeouts and their response-time metric. Retries
//! are left to [`connect`](super::connect).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pingora_core::upstreams::peer::HttpPeer;
use prometheus::Histogram;

use super::keepalive::tcp_keepalive;
use crate::config::UpstreamConfig;
use crate::metrics::Metrics;
use crate::rules::UpstreamRef;

/// All upstreams, sorted by name; a rule refers to its upstream by index.
pub(crate) struct Upstreams {
    all: Vec<Upstream>,
}

struct Upstream {
    peers: Vec<HttpPeer>,
    next: AtomicUsize,
    retries: usize,
    seconds: Histogram,
}

impl Upstreams {
    /// Builds the peers once, so that a request only copies or borrows one. The configuration has been checked: every
    /// upstream has an address.
    pub(crate) fn new(config: &BTreeMap<String, UpstreamConfig>, metrics: &Metrics) -> Self {
        let all = config.iter().map(|(name, upstream)| Upstream {
            peers: upstream.addresses.iter().map(|address| peer(*address, upstream)).collect(),
            next: AtomicUsize::new(0),
            retries: upstream.retries,
            seconds: metrics.upstream_seconds.with_label_values(&[name]),
        });
        Self { all: all.collect() }
    }

    /// The next peer in round-robin order.
    pub(super) fn next_peer(&self, upstream: &UpstreamRef) -> &HttpPeer {
        // The index comes from the same sorted list, and every upstream has a peer.
        let upstream = &self.all[upstream.index];
        let turn = upstream.next.fetch_add(1, Ordering::Relaxed);
        &upstream.peers[turn % upstream.peers.len()]
    }

    /// How many more peers are tried after a failed connect.
    pub(super) fn retries(&self, upstream: &UpstreamRef) -> usize {
        self.all[upstream.index].retries
    }

    pub(super) fn observe_response_time(&self, upstream: &UpstreamRef, elapsed: Duration) {
        self.all[upstream.index].seconds.observe(elapsed.as_secs_f64());
    }
}

fn peer(address: std::net::SocketAddr, config: &UpstreamConfig) -> HttpPeer {
    let mut peer = HttpPeer::new(address, false, String::new());
    peer.options.connection_timeout = Some(config.connect_timeout.get());
    peer.options.total_connection_timeout = Some(config.connect_timeout.get());
    peer.options.read_timeout = Some(config.answer_timeout.get());
    peer.options.write_timeout = Some(config.answer_timeout.get());
    peer.options.idle_timeout = Some(config.idle.get());
    peer.options.tcp_keepalive = Some(tcp_keepalive());
    peer
}
