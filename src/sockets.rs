//! Open WebSockets and exchanges: knows them by their session and closes them when their session or token ends or their
//! rule no longer admits them. Relays the frames of WebSockets; handshakes and exchanges themselves are left to
//! `gateway`.
//!
//! The tunnel does not run in Pingora's proxy: that one may take the end of the handshake's empty body for the end of
//! the tunnel, cannot close an idle tunnel, and needs twenty times the memory.

use std::time::Duration;

use crate::domain::session::EndCause;

mod close_batch;

pub(crate) mod expiry;

pub mod frame;

pub(crate) mod handle;

mod handle_list;

pub(crate) mod registry;

mod relay;

mod shared_slots;

mod socket_counts;

pub(crate) mod tunnel;

/// Why the gateway closes a WebSocket or cuts an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The session was ended: 4401.
    Revoked,
    /// The token expired: 4401.
    Expired,
    /// The rule no longer admits the caller: 4403.
    Forbidden,
    /// The gateway shuts down: 1001.
    Drain,
    /// The store has been unreachable for `store.outage_grace`, so the session may have ended elsewhere: 1013.
    StoreLost,
}

impl CloseReason {
    /// The code and the text of the close frame.
    pub(crate) fn code_and_text(self) -> (u16, &'static str) {
        match self {
            CloseReason::Revoked => (4401, "session ended"),
            CloseReason::Expired => (4401, "token expired"),
            CloseReason::Forbidden => (4403, "role lost"),
            CloseReason::Drain => (1001, "going away"),
            CloseReason::StoreLost => (1013, "try again later"),
        }
    }

    /// What the log says about an exchange that was cut.
    pub(crate) fn explanation(self) -> &'static str {
        match self {
            CloseReason::Revoked => "the session ended",
            CloseReason::Expired => "the token expired",
            CloseReason::Forbidden => "the rule no longer admits the caller",
            CloseReason::Drain => "it was still open at the end of the drain",
            CloseReason::StoreLost => "the store has been out of reach for too long",
        }
    }

    /// The label of `websockets_closed_total` and `exchanges_cut_total`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            CloseReason::Revoked => "revoked",
            CloseReason::Expired => "expired",
            CloseReason::Forbidden => "forbidden",
            CloseReason::Drain => "drain",
            CloseReason::StoreLost => "store_lost",
        }
    }
}

impl From<EndCause> for CloseReason {
    fn from(cause: EndCause) -> Self {
        match cause {
            EndCause::Logout
            | EndCause::Owner
            | EndCause::Operator
            | EndCause::RolesLost
            | EndCause::Disabled
            | EndCause::Left
            | EndCause::Removed
            | EndCause::Unlinked
            | EndCause::KeyRemoved => CloseReason::Revoked,
            EndCause::Expired => CloseReason::Expired,
        }
    }
}

/// Whether the rule allows the employee another socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capacity {
    Available,
    Exhausted,
}

/// Longest wait for the client's close frame before the connection is closed.
const CLIENT_CLOSE_TIMEOUT: Duration = Duration::from_millis(300);
