//! The services behind the gateway: their addresses in turn, with their timeouts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pingora_core::upstreams::peer::HttpPeer;
use prometheus::Histogram;

use super::accept::keepalive;
use crate::config::UpstreamConfig;
use crate::metrics::Metrics;
use crate::rules::UpstreamRef;

/// All upstreams, in the order of their names: a rule knows its upstream's place.
pub struct Upstreams {
    all: Vec<Upstream>,
}

struct Upstream {
    peers: Vec<HttpPeer>,
    next: AtomicUsize,
    retries: usize,
    seconds: Histogram,
}

impl Upstreams {
    /// Makes the peers once, so that a request only copies one. Every upstream has an address: the
    /// configuration was checked.
    pub fn new(config: &BTreeMap<String, UpstreamConfig>, metrics: &Metrics) -> Self {
        let all = config.iter().map(|(name, upstream)| Upstream {
            peers: upstream.addresses.iter().map(|address| peer(*address, upstream)).collect(),
            next: AtomicUsize::new(0),
            retries: upstream.retries,
            seconds: metrics.upstream_seconds.with_label_values(&[name]),
        });
        Self { all: all.collect() }
    }

    /// The address whose turn it is.
    pub fn next(&self, upstream: &UpstreamRef) -> &HttpPeer {
        // The index was given by the same list, and no upstream is without an address.
        let upstream = &self.all[upstream.index];
        let turn = upstream.next.fetch_add(1, Ordering::Relaxed);
        &upstream.peers[turn % upstream.peers.len()]
    }

    /// How often another address may be tried.
    pub fn retries(&self, upstream: &UpstreamRef) -> usize {
        self.all[upstream.index].retries
    }

    /// How long an upstream took to answer.
    pub fn answered(&self, upstream: &UpstreamRef, took: Duration) {
        self.all[upstream.index].seconds.observe(took.as_secs_f64());
    }
}

fn peer(address: std::net::SocketAddr, config: &UpstreamConfig) -> HttpPeer {
    let mut peer = HttpPeer::new(address, false, String::new());
    peer.options.connection_timeout = Some(config.connect_timeout.get());
    peer.options.total_connection_timeout = Some(config.connect_timeout.get());
    peer.options.read_timeout = Some(config.answer_timeout.get());
    peer.options.write_timeout = Some(config.answer_timeout.get());
    peer.options.idle_timeout = Some(config.idle.get());
    peer.options.tcp_keepalive = Some(keepalive());
    peer
}
