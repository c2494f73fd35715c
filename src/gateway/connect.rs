//! Upstream connections and retries for every lane to an upstream: which peer is tried, how often, and whether a
//! request may be sent again. What is sent over a connection is left to the lanes; Pingora's proxy connects by itself
//! and asks here.

use std::time::{Duration, Instant};

use pingora_core::RetryType;
use pingora_core::protocols::Stream;
use pingora_core::upstreams::peer::{HttpPeer, Peer};
use pingora_proxy::Session as Exchange;

use super::Gateway;
use super::upstreams::Upstreams;
use crate::rules::UpstreamRef;

/// The attempts of one request to reach its upstream.
#[derive(Debug, Default)]
pub(super) struct UpstreamAttempts {
    failed_connects: usize,
    source: ConnectionSource,
    /// When the current attempt chose its peer.
    started: Option<Instant>,
}

/// Where a connection to an upstream comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ConnectionSource {
    /// The pool of idle connections, or a new connection if the pool has none.
    #[default]
    Pool,
    /// A new connection.
    New,
}

/// What follows a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryDecision {
    Retry,
    GiveUp,
}

/// Whether a request can be sent a second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replay {
    /// Its method is idempotent and its body, if any, is still buffered.
    Safe,
    Unsafe,
}

impl Replay {
    pub(super) fn of(exchange: &Exchange) -> Self {
        let is_buffered = !exchange.as_ref().retry_buffer_truncated();
        if exchange.req_header().method.is_idempotent() && is_buffered { Self::Safe } else { Self::Unsafe }
    }
}

/// A connection to one peer of an upstream.
pub(super) struct UpstreamConnection<'a> {
    pub(super) stream: Stream,
    pub(super) peer: &'a HttpPeer,
    pub(super) source: ConnectionSource,
}

impl UpstreamAttempts {
    /// Attempts that use no pooled connection: a WebSocket keeps its connection to the end.
    pub(super) fn on_new_connections() -> Self {
        Self { source: ConnectionSource::New, ..Self::default() }
    }

    /// Starts an attempt and chooses its peer.
    pub(super) fn next_peer<'a>(&mut self, upstreams: &'a Upstreams, upstream: &UpstreamRef) -> &'a HttpPeer {
        self.started = Some(Instant::now());
        upstreams.next_peer(upstream)
    }

    /// Decides after a failed connect: the request has not been sent, so only the configured number of retries counts.
    pub(super) fn after_failed_connect(&mut self, upstreams: &Upstreams, upstream: &UpstreamRef) -> RetryDecision {
        self.failed_connects += 1;
        if self.failed_connects <= upstreams.retries(upstream) { RetryDecision::Retry } else { RetryDecision::GiveUp }
    }

    /// Decides after a request was sent and no response came. The only retry is for a pooled connection that the
    /// upstream most likely closed while it was idle; the next attempt uses a new connection.
    pub(super) fn after_failed_exchange(
        &mut self,
        error: &pingora_core::Error,
        source: ConnectionSource,
        replay: Replay,
    ) -> RetryDecision {
        match (source, replay, error.retry) {
            (ConnectionSource::Pool, Replay::Safe, RetryType::ReusedOnly) => {
                self.source = ConnectionSource::New;
                RetryDecision::Retry
            }
            _ => RetryDecision::GiveUp,
        }
    }

    /// The time since the current attempt chose its peer, for the first response header only.
    pub(super) fn take_elapsed(&mut self) -> Option<Duration> {
        self.started.take().map(|started| started.elapsed())
    }
}

impl Gateway {
    /// Connects to a peer of `upstream`, and to further peers as long as retries are left.
    pub(super) async fn connect(
        &self,
        upstream: &UpstreamRef,
        attempts: &mut UpstreamAttempts,
    ) -> pingora_core::Result<UpstreamConnection<'_>> {
        loop {
            let peer = attempts.next_peer(&self.upstreams, upstream);
            let connected = match attempts.source {
                ConnectionSource::Pool => self.connector.get_stream(peer).await.map(|(stream, reused)| {
                    (stream, if reused { ConnectionSource::Pool } else { ConnectionSource::New })
                }),
                ConnectionSource::New => {
                    self.connector.new_stream(peer).await.map(|stream| (stream, ConnectionSource::New))
                }
            };
            match connected {
                Ok((stream, source)) => return Ok(UpstreamConnection { stream, peer, source }),
                Err(error) => match attempts.after_failed_connect(&self.upstreams, upstream) {
                    RetryDecision::Retry => {}
                    RetryDecision::GiveUp => return Err(error.into_up()),
                },
            }
        }
    }

    /// Keeps a connection for later requests to the same peer, if it can serve them.
    pub(super) fn pool(&self, stream: Option<Stream>, peer: &HttpPeer) {
        if let Some(stream) = stream {
            self.connector.release_stream(stream, peer.reuse_hash(), peer.idle_timeout());
        }
    }
}

#[cfg(test)]
mod tests;
