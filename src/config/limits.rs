//! `[limits]`: sizes, timeouts and counts that bound what clients can use up.

use serde::{Deserialize, Serialize};

use super::{Faults, HumanDuration};

/// `[limits]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Largest request head in bytes; a larger one is refused with 1431.
    pub head_bytes: usize,
    /// Most header lines; more are refused with 1431. Pingora itself accepts at most 256.
    pub headers: usize,
    /// Longest request target in bytes; a longer one is refused with 1414.
    pub target_bytes: usize,
    /// Largest request body of our own endpoints in bytes; a larger one is refused with 1413. Proxied bodies are streamed.
    pub body_bytes: usize,
    /// Timeout for the whole head, from its first byte, against slow senders (1408).
    pub head_deadline: HumanDuration,
    /// Timeout for the whole request body of our own endpoints (1408).
    pub body_deadline: HumanDuration,
    /// Minimum rate of proxied bodies in bytes a second, in both directions, while they wait for the client: an upload that
    /// stays below is refused with 1408, a response that is not read is cut. 0: no minimum.
    pub body_rate: u32,
    /// How long a client may stay below `body_rate`.
    pub body_grace: HumanDuration,
    /// Timeout for the whole body of a proxied request, from when the gateway first waits for it (1408). 0: none; then only
    /// `body_rate` bounds it.
    pub upload_deadline: HumanDuration,
    /// Keep-alive timeout: how long a connection may be idle between requests.
    pub idle: HumanDuration,
    /// Timeout of one write to a client, of up to 64 KiB.
    pub stalled: HumanDuration,
    /// Most open client connections, WebSockets included; more wait in the kernel's accept queue.
    pub connections: usize,
    /// Most open connections of one address, IPv6 by /64, and four times as many by /48; more are closed at once. Also
    /// the most concurrent requests to upstreams on its HTTP/2 connections; more are refused with 1429. 0: no limit.
    /// `server.trusted_proxies` are exempt: they carry many clients.
    pub connections_per_address: usize,
    /// Most concurrent requests on one HTTP/2 connection; more are reset. Each may hold a connection to an upstream.
    pub streams_per_connection: u32,
    /// Most requests a minute of one address (IPv6 as in the rules) with a token that the gateway can never have issued;
    /// more are refused with 1429. Valid tokens of the same address are never refused. 0: no limit.
    pub invalid_tokens: u32,
    /// Memory in bytes beyond which new requests are refused with 1503, before the kernel ends the process. 0: nine tenths of
    /// the control group's limit, if it has one.
    pub memory: u64,
    /// Most keys (employees, addresses, …) with a rate-limit counter.
    pub rate_keys: usize,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            head_bytes: 32 * 1024,
            headers: 100,
            target_bytes: 16 * 1024,
            body_bytes: 64 * 1024,
            head_deadline: HumanDuration::seconds(10),
            body_deadline: HumanDuration::seconds(15),
            body_rate: 240,
            body_grace: HumanDuration::seconds(30),
            upload_deadline: HumanDuration::seconds(0),
            idle: HumanDuration::seconds(60),
            stalled: HumanDuration::seconds(60),
            connections: 100_000,
            connections_per_address: 10_000,
            streams_per_connection: 100,
            invalid_tokens: 600,
            memory: 0,
            rate_keys: 200_000,
        }
    }
}

impl LimitsConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        if !(1024..=512 * 1024).contains(&self.head_bytes) {
            faults.add("limits.head_bytes", format!("{} is not between 1024 and 524288", self.head_bytes));
        }
        if !(10..=256).contains(&self.headers) {
            faults.add("limits.headers", format!("{} is not between 10 and 256", self.headers));
        }
        if self.target_bytes > self.head_bytes {
            let why = format!("{} is larger than limits.head_bytes ({})", self.target_bytes, self.head_bytes);
            faults.add("limits.target_bytes", why);
        }
        if self.body_rate > 0 && self.body_grace.get().is_zero() {
            faults.add("limits.body_grace", "\"0s\" would cut every body; set limits.body_rate = 0 for no minimum");
        }
        if self.idle.get().as_secs() == 0 {
            faults.add("limits.idle", format!("\"{}\" is too short; use at least \"1s\"", self.idle));
        }
        if self.rate_keys < 1000 {
            faults.add("limits.rate_keys", format!("{} is too small; use at least 1000", self.rate_keys));
        }
        if !(1..=500).contains(&self.streams_per_connection) {
            let why = format!("{} is not between 1 and 500", self.streams_per_connection);
            faults.add("limits.streams_per_connection", why);
        }
        if self.connections == 0 {
            faults.add("limits.connections", "0 would accept no connection; use at least 1");
        }
    }
}
