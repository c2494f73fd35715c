//! `[websocket]`

use serde::{Deserialize, Serialize};
use url::Url;

use super::HumanDuration;

/// Whether a token may stand in the query of a WebSocket handshake. In the file: `true` or `false`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum QueryToken {
    /// Read it, and count it.
    Accepted,
    /// Do not read it.
    Refused,
}

impl From<bool> for QueryToken {
    fn from(accepted: bool) -> Self {
        if accepted { Self::Accepted } else { Self::Refused }
    }
}

impl From<QueryToken> for bool {
    fn from(setting: QueryToken) -> Self {
        setting == QueryToken::Accepted
    }
}

/// `[websocket]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebSocketConfig {
    /// The older clients' `?token=`. Counted in a metric, because it is to go away.
    pub query_token: QueryToken,
    /// Pages from these origins may open sockets, beside our own and the clients'.
    pub origins: Vec<Url>,
    /// Longest wait for the upstream's answer to a handshake.
    pub handshake: HumanDuration,
    /// How long a closed socket may take to go away before it is cut.
    pub close_grace: HumanDuration,
}

impl Default for WebSocketConfig {
    fn default() -> Self {
        Self {
            query_token: QueryToken::Accepted,
            origins: Vec::new(),
            handshake: HumanDuration::seconds(10),
            close_grace: HumanDuration::seconds(1),
        }
    }
}
