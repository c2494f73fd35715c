//! QR-code sign-in tickets and their states.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::client::Client;
use super::clock::Timestamp;
use super::employee::{CorpId, EmployeeId};
use super::identifier;
use super::secret::Digest;
use super::session::{SessionId, Version};

identifier! {
    /// Held by the asking browser alone; whoever has it can collect the token.
    TicketId
}

identifier! {
    /// Shown to everyone in the QR code; opens nothing by itself.
    ScanId
}

identifier! {
    /// Held by the phone that scanned; without it nobody can press Confirm.
    ConfirmId
}

identifier! {
    /// Tells one browser from another while they wait for their codes to be scanned.
    BrowserId
}

/// The person whose phone scanned the code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scanner {
    /// Their corporation.
    pub corp_id: CorpId,
    /// Who they are.
    pub employee_id: EmployeeId,
    /// Display name.
    pub name: String,
    /// The phone's address.
    #[serde(default)]
    pub address: String,
}

/// The sign-in request that the phone is asked to confirm.
#[derive(Debug, Clone)]
pub struct ConfirmPrompt {
    /// The name of the user who scanned the code.
    pub name: String,
    /// The address of the browser that requested the code.
    pub address: String,
    /// That browser's `User-Agent`.
    pub user_agent: String,
    /// When the code was requested.
    pub at: Timestamp,
    /// How long ago that is.
    pub ago: Duration,
    /// The two digits that both screens show.
    pub number: String,
}

/// Where a ticket stands. Only forwards, never back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum TicketState {
    /// Nobody has scanned it.
    Waiting,
    /// Scanned; the phone has not confirmed.
    Scanned {
        /// Who scanned.
        by: Scanner,
        /// What the phone's confirm page must show to be believed.
        confirm: ConfirmId,
    },
    /// Confirmed; the browser has not collected the token.
    Confirmed {
        /// Who confirmed.
        by: Scanner,
    },
    /// The token has been handed out, and is handed out again until `until`.
    Delivered {
        /// Who signed in.
        by: Scanner,
        /// The session behind the token.
        session: SessionId,
        /// After this the ticket is expired.
        until: Timestamp,
    },
    /// Cancelled on the phone.
    Cancelled,
}

impl TicketState {
    /// As the poll endpoint and `tickets_total` spell it.
    pub fn as_str(&self) -> &'static str {
        match self {
            TicketState::Waiting => "waiting",
            TicketState::Scanned { .. } => "scanned",
            TicketState::Confirmed { .. } => "confirmed",
            TicketState::Delivered { .. } => "delivered",
            TicketState::Cancelled => "cancelled",
        }
    }
}

/// One attempt to sign in by QR code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// The browser's handle.
    pub id: TicketId,
    /// The QR code's handle.
    pub scan_id: ScanId,
    /// The two digits that both screens show.
    pub number: u8,
    /// How often it has changed.
    pub version: Version,
    /// Where it stands.
    pub state: TicketState,
    /// When the code was asked for.
    pub created_at: Timestamp,
    /// When it can no longer be scanned, confirmed or collected.
    pub expires_at: Timestamp,
    /// The asking browser's address.
    pub address: String,
    /// The asking browser's `User-Agent`.
    pub user_agent: String,
    /// The web client whose sign-in page asked, if one did.
    #[serde(default)]
    pub client: Option<Client>,
    /// How many codes of the platform were tried on it that were none.
    #[serde(default)]
    pub misses: u8,
    /// The print of the asking browser's own cookie.
    #[serde(default)]
    pub browser: Option<Digest>,
}

impl Ticket {
    /// How long the token is handed out after its first delivery.
    pub const DELIVERY_WINDOW: Duration = Duration::from_secs(30);

    /// Whether nothing can come of this ticket any more. Judged when read, never left to a sweeper.
    pub fn is_over(&self, now: Timestamp) -> bool {
        match &self.state {
            TicketState::Cancelled => true,
            TicketState::Delivered { until, .. } => now >= *until,
            TicketState::Waiting | TicketState::Scanned { .. } | TicketState::Confirmed { .. } => {
                now >= self.expires_at
            }
        }
    }
}
