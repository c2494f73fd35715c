//! `[upstreams.NAME]`: a service behind the gateway.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{Faults, HumanDuration};

/// `[upstreams.NAME]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamConfig {
    /// Where it listens; requests go to them in turn.
    pub addresses: Vec<SocketAddr>,
    /// Longest wait for a connection (1502).
    pub connect_timeout: HumanDuration,
    /// Longest wait for the answer to begin, and between two pieces of it (1504).
    pub answer_timeout: HumanDuration,
    /// How long an unused connection is kept.
    pub idle: HumanDuration,
    /// Further tries when a connection cannot be made, each on the next address.
    pub retries: usize,
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            connect_timeout: HumanDuration::seconds(2),
            answer_timeout: HumanDuration::seconds(60),
            idle: HumanDuration::seconds(60),
            retries: 1,
        }
    }
}

impl UpstreamConfig {
    pub(super) fn check(&self, name: &str, faults: &mut Faults) {
        let key = format!("upstreams.{name}");
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)) {
            faults.add(&key, "an upstream's name has letters, digits, `_` and `-` only");
        }
        if self.addresses.is_empty() {
            faults.add(&format!("{key}.addresses"), "name at least one address");
        }
        if self.retries > 3 {
            faults.add(&format!("{key}.retries"), "must be at most 3");
        }
    }
}
