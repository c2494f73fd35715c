//! QR-code sign-in tickets and their states.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::client::Client;
use super::clock::{RECORD_LEEWAY, Timestamp};
use super::employee::{CorpId, EmployeeId};
use super::identifier;
use super::link::PlatformAccount;
use super::secret::Digest;
use super::session::{SessionId, Version};

identifier! {
    /// Held by the requesting browser alone; collects the token.
    TicketId
}

identifier! {
    /// Visible in the QR code; gives access to nothing by itself.
    ScanId
}

identifier! {
    /// Held by the phone that scanned; required to confirm.
    ConfirmId
}

/// Defines the digest of an identifier whose holder may do something: the store has the digest, never the identifier.
macro_rules! digest {
    ($(#[$doc:meta])* $name:ident of $id:ident as $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Digest);

        impl $name {
            /// Wraps a digest that was read from the store.
            pub fn from_stored(text: String) -> Self {
                Self(Digest::from_stored(text))
            }

            /// The digest as text.
            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }
        }

        impl $id {
            /// What the store has in place of the identifier.
            pub fn digest(&self) -> $name {
                $name(Digest::of(&[$kind, self.as_str()]))
            }
        }
    };
}

digest! {
    /// The digest of a [`TicketId`].
    TicketDigest of TicketId as "ticket"
}

digest! {
    /// The digest of a [`ScanId`].
    ScanDigest of ScanId as "scan id"
}

digest! {
    /// The digest of a [`ConfirmId`].
    ConfirmDigest of ConfirmId as "confirm id"
}

identifier! {
    /// Identifies a browser while it waits for its code to be scanned.
    BrowserId
}

/// The employee whose phone scanned the code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scanner {
    /// The employee's corporation.
    pub corp_id: CorpId,
    /// The employee's id.
    pub employee_id: EmployeeId,
    /// Display name.
    pub name: String,
    /// The phone's address.
    #[serde(default)]
    pub address: String,
    /// The account of a connected corporation whose link leads to the employee.
    #[serde(default)]
    pub platform_account: Option<PlatformAccount>,
}

/// The state of a ticket; it only moves forward.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum TicketState {
    /// Not scanned yet.
    Waiting,
    /// Scanned, not confirmed yet.
    Scanned {
        /// The employee who scanned.
        by: Scanner,
        /// The proof that the phone's confirm page must present.
        confirm: ConfirmDigest,
    },
    /// Confirmed; the token is not collected yet.
    Confirmed {
        /// The employee who confirmed.
        by: Scanner,
        /// The id of the phone's request that confirmed, for the login log.
        #[serde(default)]
        request_id: String,
    },
    /// The token was delivered, and is delivered again until `until`.
    Delivered {
        /// The employee who signed in.
        by: Scanner,
        /// The session behind the token.
        session: SessionId,
        /// When the ticket expires.
        until: Timestamp,
    },
    /// Cancelled on the phone.
    Cancelled,
    /// The platform or the directory refused the person who scanned.
    Refused,
}

impl TicketState {
    /// The name in `tickets_total`.
    pub fn as_str(&self) -> &'static str {
        match self {
            TicketState::Waiting => "waiting",
            TicketState::Scanned { .. } => "scanned",
            TicketState::Confirmed { .. } => "confirmed",
            TicketState::Delivered { .. } => "delivered",
            TicketState::Cancelled => "cancelled",
            TicketState::Refused => "refused",
        }
    }
}

/// One sign-in attempt by QR code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// The id that the browser polls with.
    pub id: TicketDigest,
    /// The id in the QR code.
    pub scan_id: ScanDigest,
    /// The two-digit number that both screens show.
    pub number: u8,
    /// The record's version.
    pub version: Version,
    /// The state.
    pub state: TicketState,
    /// When the code was requested.
    pub created_at: Timestamp,
    /// When the ticket expires.
    pub expires_at: Timestamp,
    /// The requesting browser's address.
    pub address: String,
    /// The requesting browser's `User-Agent`.
    pub user_agent: String,
    /// The web client whose sign-in page requested the code, if any.
    #[serde(default)]
    pub client: Option<Client>,
    /// How many invalid authorization codes were presented for it.
    #[serde(default)]
    pub misses: u8,
    /// The digest of the requesting browser's cookie.
    #[serde(default)]
    pub browser: Option<Digest>,
}

impl Ticket {
    /// How long the token is delivered again after its first delivery.
    pub const DELIVERY_WINDOW: Duration = Duration::from_secs(30);

    /// Whether the ticket has expired, was cancelled or was refused. Checked on every read, never left to a sweep.
    pub fn has_ended(&self, now: Timestamp) -> bool {
        matches!(self.state, TicketState::Cancelled | TicketState::Refused) || self.is_expired(now)
    }

    /// Whether the ticket has expired. One from the future has too: a clock that was set back does not extend its life.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.last_moment() || self.created_at.is_ahead_of(now, RECORD_LEEWAY)
    }

    fn last_moment(&self) -> Timestamp {
        match &self.state {
            TicketState::Delivered { until, .. } => *until,
            _ => self.expires_at,
        }
    }
}
