//! `[websocket]`: handshakes and closing.

use serde::{Deserialize, Serialize};
use url::Url;

use super::{HumanDuration, values};

/// Whether `?token=` of a WebSocket handshake is read. In the file: `true` or `false`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum QueryToken {
    /// It is read and counted in a metric.
    Accepted,
    /// It is ignored.
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
    /// Accept `?token=` of older clients. Each use is counted in a metric, because it is deprecated.
    pub query_token: QueryToken,
    /// Origins that may open WebSockets, in addition to our own and those of `[clients]`.
    #[serde(deserialize_with = "values::urls")]
    pub origins: Vec<Url>,
    /// Timeout of the upstream's handshake response.
    pub handshake: HumanDuration,
    /// How long a WebSocket may take to complete its closing handshake before its connection is closed.
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
