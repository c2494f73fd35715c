//! Integration tests against the real binary: one file per endpoint or promise of the contract.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Tests compare with the real clock and damage databases on purpose.
#![allow(clippy::disallowed_methods)]

mod support;

#[path = "../servers/servers.rs"]
mod servers;

mod qrcode;

mod scan_status;

mod oauth2;

mod verify;

mod logout;

mod me;
mod metrics;

mod switch_role;

mod bind;

mod sessions;

mod fast_lane;

mod fast_lane_responses;

mod fast_lane_bodies;

mod fast_lane_generated;

mod otp;

mod overload;

mod tail;

mod status;

mod further_roles;

mod descriptors;

mod service_manager;

mod traces;
mod upgrade;

mod shared_rates;

mod agents;

mod agents_conceal;

mod upstream_failover;

mod upstream_settings;

mod user_roles;

mod links;

mod login_log;

mod audit_log;
mod audit_stream;

mod platform_faults;

mod leaving;

mod browser;

mod dev;

mod operations;

mod request_log;

mod check;

mod check_all_stages;

mod operate;

mod people;

mod people_devices;

mod people_recovery;

mod keys;

mod fleet_once;

mod fleet_secret;

mod fleet_keys;

mod envelope;

mod openapi;

mod tokens;

mod token_claims;

mod token_sources;

mod crash;

mod many_sessions;

mod clock;

mod secrets;

mod proxy_http;

mod proxy_connections;

mod slow_clients;

mod proxy_headers;

mod cors;

mod websocket_tokens;

mod websocket_handshake;

mod websocket_relay;

mod websocket_revocation;

mod exchanges;

mod identity_headers;

mod assertions;

mod client_address;

mod load_balancer;

mod hosts;

mod paths;

mod framing;

mod odd_requests;

mod upstream_responses;

mod pipelining;

mod tls;

mod listeners;

mod certificates;

mod proxy_protocol;

mod forwarded;

mod refused_uploads;

mod http2;

mod http2_proxy;

mod http2_upstreams;

mod upstream_tls;

mod rules;

mod rate;

mod reload;

mod disk;

mod postgres;

mod drain;
