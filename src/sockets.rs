//! Open WebSockets: the relay between client and upstream, and who must be told when a session ends.
//!
//! The tunnel is ours and not the proxy's: the engine's own may take the end of the handshake's empty
//! body for the end of the tunnel, cannot be ended while it is idle, and costs twenty times the memory.

use std::time::Duration;

use crate::domain::session::EndCause;

pub mod frame;

pub mod registry;

pub mod tunnel;

/// Why the gateway ends a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The session was ended: 4401.
    Revoked,
    /// The token's time ran out: 4401.
    Expired,
    /// The rule no longer admits the session: 4403.
    Forbidden,
    /// The gateway stops: 1001.
    Drain,
}

impl Ending {
    /// The close code and the reason that go with it.
    pub fn close(self) -> (u16, &'static str) {
        match self {
            Ending::Revoked => (4401, "session ended"),
            Ending::Expired => (4401, "token expired"),
            Ending::Forbidden => (4403, "role lost"),
            Ending::Drain => (1001, "going away"),
        }
    }

    /// The label of `websockets_closed_total`.
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Revoked => "revoked",
            Ending::Expired => "expired",
            Ending::Forbidden => "forbidden",
            Ending::Drain => "drain",
        }
    }

    /// What the end of a session means for its sockets.
    pub fn of(cause: EndCause) -> Self {
        match cause {
            EndCause::Logout | EndCause::Owner | EndCause::Operator | EndCause::RolesLost | EndCause::KeyRemoved => {
                Ending::Revoked
            }
            EndCause::Expired => Ending::Expired,
        }
    }
}

/// How long the client has to answer a close frame before the connection is closed anyway.
pub const ANSWER_TO_CLOSE: Duration = Duration::from_millis(300);
