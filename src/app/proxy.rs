//! Sets Pingora up: the gateway behind its sessions, its HTTP/2 options and the acceptor that feeds it. What happens to a
//! request is left to `gateway`.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use pingora_core::apps::HttpServerOptions;
use pingora_core::protocols::http::v2::server::{H2Options, default_h2_options};
use pingora_timeout::fast_timeout::set_fast_timeout_to_tokio_threshold;
use tokio::runtime::Handle;

use super::descriptors::Descriptors;
use super::wire::{self, Services};
use crate::api::Api;
use crate::api::ready::Readiness;
use crate::api::site::Site;
use crate::config::{Config, LimitsConfig};
use crate::domain::own_cookie::CookieScope;
use crate::gateway::accept::{self, Acceptor};
use crate::gateway::concurrency::ConcurrencyLimit;
use crate::gateway::connection::{BodyLimits, ClientLimits, HeadLimits};
use crate::gateway::connection_limits::ConnectionLimits;
use crate::gateway::connection_slots::ConnectionSlots;
use crate::gateway::connector::UpstreamConnector;
use crate::gateway::cut::ExchangeCutter;
use crate::gateway::drain_signal::DrainSignal;
use crate::gateway::early_refusal::EarlyRefusals;
use crate::gateway::proxy_app::ProxyApp;
use crate::gateway::{Gateway, SocketSettings};
use crate::pipeline::Gate;
use crate::pipeline::record::NoRuleMetrics;
use crate::traces::Tracer;

/// Lower bound of the HTTP/2 header list: each field counts 32 bytes more than it has, and many short ones must fit.
const MIN_HEADER_LIST_BYTES: u32 = 64 * 1024;

pub(super) fn gateway(
    config: &Config,
    services: &Services,
    readiness: &Arc<Readiness>,
    drain: &Arc<DrainSignal>,
    tracer: Option<Arc<Tracer>>,
    descriptors: Descriptors,
) -> Gateway {
    Gateway {
        gate: services.gate.clone(),
        api: Api {
            signin: services.signin.clone(),
            admin: services.admin.clone(),
            clock: services.gate.clock.clone(),
            readiness: readiness.clone(),
            site: Site {
                public_url: wire::issuer(config),
                clients: config.clients.clone(),
                platform: config.platform.kind,
            },
            limits: services.gate.limits.clone(),
            cookie_scope: match config.server.public_url.scheme() {
                "https" => CookieScope::Host,
                _ => CookieScope::Plain,
            },
        },
        upstreams: services.upstreams.clone(),
        connector: UpstreamConnector::new(Handle::current().metrics().num_workers(), pool_size(descriptors)),
        sockets: SocketSettings {
            registry: services.registry.clone(),
            handshake: config.websocket.handshake.get(),
            close_grace: config.websocket.close_grace.get(),
        },
        drain: drain.clone(),
        no_rule_metrics: Arc::new(NoRuleMetrics::new(&services.metrics, config.log.requests)),
        tracer,
    }
}

/// The connector has a pool of idle connections for each version of HTTP.
fn pool_size(descriptors: Descriptors) -> usize {
    (descriptors.pool / 2).max(1)
}

pub(super) fn acceptor(config: &Config, gateway: Gateway, descriptors: Descriptors) -> Acceptor {
    // Pingora keeps a timer until it fires, even when it was cancelled. Nearly all of ours are cancelled early, so
    // Tokio's timers cost less memory.
    set_fast_timeout_to_tokio_threshold(Some(Duration::ZERO));
    let gateway = Arc::new(gateway);
    let cutter = Arc::new(ExchangeCutter {
        gate: gateway.gate.clone(),
        registry: gateway.sockets.registry.clone(),
        no_rule_metrics: gateway.no_rule_metrics.clone(),
    });
    let gate = gateway.gate.clone();
    let metrics = gate.metrics.clone();
    accept::create_metrics(&metrics);
    let (per_address, proxies) = (config.limits.connections_per_address, config.server.trusted_proxies.clone());
    Acceptor {
        connection_limits: Arc::new(ConnectionLimits::new(per_address, proxies, descriptors.streams)),
        drain: gateway.drain.clone(),
        limits: ArcSwap::from_pointee(client_limits(&config.limits, &gate)),
        app: Arc::new(ProxyApp {
            fast_lane: config.server.fast_lane.then(|| gateway.clone()),
            gateway,
            cutter,
            concurrency: Arc::new(ConcurrencyLimit::new(Handle::current().metrics().num_workers())),
            saturated: metrics.limit_counter("saturated"),
            refusals: early_refusals(&gate),
            server_options: server_options(&config.limits),
            h2_options: http2_options(&config.limits),
        }),
        connection_slots: ConnectionSlots::new(descriptors.connections, &metrics),
        metrics,
    }
}

/// Where requests that are refused before they are examined are counted and kept.
fn early_refusals(gate: &Gate) -> EarlyRefusals {
    EarlyRefusals { metrics: gate.metrics.refusals().clone(), journal: gate.journal.clone() }
}

pub(super) fn client_limits(limits: &LimitsConfig, gate: &Gate) -> ClientLimits {
    ClientLimits {
        head: HeadLimits {
            deadline: limits.head_deadline.get(),
            idle: limits.idle.get(),
            bytes: limits.head_bytes,
            target: limits.target_bytes,
            lines: limits.headers,
        },
        body: BodyLimits::new(limits, &gate.metrics),
        frame_floods: gate.metrics.limit_counter("http2_frames"),
        refusals: early_refusals(gate),
    }
}

fn server_options(limits: &LimitsConfig) -> HttpServerOptions {
    let mut options = HttpServerOptions::default();
    options.h2_idle_timeout = Some(limits.idle.get());
    options
}

/// The most bytes of a response that h2 keeps for each stream until the client takes them.
const STREAM_SEND_BUFFER: usize = 16 * 1024;

/// Leaves room for heads up to twice our limit: the pipeline answers a slightly too large one with 1431, and HTTP/2
/// itself stops reading a far larger one.
fn http2_options(limits: &LimitsConfig) -> H2Options {
    let mut options = default_h2_options();
    let twice = u32::try_from(limits.head_bytes * 2).unwrap_or(u32::MAX);
    options.max_header_list_size(twice.max(MIN_HEADER_LIST_BYTES));
    options.max_send_buffer_size(STREAM_SEND_BUFFER);
    options.max_concurrent_streams(limits.streams_per_connection);
    options
}
