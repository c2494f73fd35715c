//! What a gateway says about itself to the rest of its fleet.

use serde::{Deserialize, Serialize};

use super::clock::Timestamp;
use super::identifier;

identifier! {
    /// Identifies a running gateway; another one after each start.
    GatewayId
}

/// The state of a running gateway, as it was announced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// The gateway.
    pub id: GatewayId,
    /// The name of its machine.
    pub host: String,
    /// The first address that clients reach it at.
    pub listen: String,
    /// Its version.
    pub version: String,
    /// The commit that it was built from.
    pub commit: String,
    /// The digest of its rules.
    pub rules: String,
    /// The digest of the settings that must be the same on all gateways.
    pub config: String,
    /// How many WebSockets are open.
    pub sockets: usize,
    /// How long ago it had last read the change feed, in milliseconds; `None` if it never had.
    pub feed_lag_ms: Option<u64>,
    /// When it was started.
    pub started_at: Timestamp,
    /// When it said this.
    pub announced_at: Timestamp,
}
