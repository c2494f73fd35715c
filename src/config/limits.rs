//! `[limits]`: how much of a request is read, and for how long.

use serde::{Deserialize, Serialize};

use super::{Faults, HumanDuration};

/// `[limits]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Largest request head in bytes; more is 1431.
    pub head_bytes: usize,
    /// Most header lines; more is 1431. The engine itself stops at 256.
    pub headers: usize,
    /// Longest request target in bytes; more is 1414.
    pub target_bytes: usize,
    /// Largest body of our own endpoints in bytes; more is 1413. Proxied bodies are streamed.
    pub body_bytes: usize,
    /// For the whole head, from its first byte; a drip-fed one is cut (1408).
    pub head_deadline: HumanDuration,
    /// For the whole body of our own endpoints (1408).
    pub body_deadline: HumanDuration,
    /// How long a connection may wait for its next request.
    pub idle: HumanDuration,
    /// How long a client may take nothing of an answer that waits for it.
    pub stalled: HumanDuration,
    /// Most client connections at once, sockets included; further ones wait in the kernel's queue.
    pub connections: usize,
    /// Most keys (employees, addresses, …) that rates are counted for at once.
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
            idle: HumanDuration::seconds(60),
            stalled: HumanDuration::seconds(60),
            connections: 100_000,
            rate_keys: 200_000,
        }
    }
}

impl LimitsConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        if !(1024..=512 * 1024).contains(&self.head_bytes) {
            faults.add("limits.head_bytes", "must lie between 1024 and 524288");
        }
        if !(10..=256).contains(&self.headers) {
            faults.add("limits.headers", "must lie between 10 and 256");
        }
        if self.target_bytes > self.head_bytes {
            faults.add("limits.target_bytes", "must not exceed limits.head_bytes");
        }
        if self.idle.get().as_secs() == 0 {
            faults.add("limits.idle", "must be at least 1s");
        }
        if self.rate_keys < 1000 {
            faults.add("limits.rate_keys", "must be at least 1000");
        }
        if self.connections == 0 {
            faults.add("limits.connections", "must be at least 1");
        }
    }
}
