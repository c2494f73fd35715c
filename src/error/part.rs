//! What a 1005 or 1503 names: the operation that failed and the part of the service that failed it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::messages::Message;

/// A part of the service that may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The store: sessions and tickets.
    Store,
    /// The directory: employees and roles.
    Directory,
    /// The messaging platform.
    Platform,
    /// The platform's configuration: the platform rejects our credentials.
    PlatformSetup,
    /// This process.
    Gateway,
}

impl Part {
    pub(super) fn message(self) -> Message {
        match self {
            Part::Store => Message::PART_STORE,
            Part::Directory => Message::PART_DIRECTORY,
            Part::Platform | Part::PlatformSetup => Message::PART_PLATFORM,
            Part::Gateway => Message::PART_GATEWAY,
        }
    }
}

/// For the log.
impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Store => "store",
            Part::Directory => "directory",
            Part::Platform => "platform",
            Part::PlatformSetup => "platform configuration",
            Part::Gateway => "gateway",
        })
    }
}

/// The operation of an endpoint; its 1005 begins with a fixed phrase for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Any other request.
    Request,
    /// Issuing a QR code.
    Qrcode,
    /// Polling a ticket.
    ScanStatus,
    /// Building the authorize URL.
    AuthorizeUrl,
    /// Handling the platform's callback.
    Callback,
    /// Verifying a token.
    Verify,
    /// Logging out.
    Logout,
    /// Switching roles.
    SwitchRole,
    /// Binding an account.
    Bind,
    /// Listing or ending sessions.
    Sessions,
    /// Administration.
    Admin,
    /// Signing an agent in, or setting an agent's password.
    Agent,
    /// Setting up a one-time password device, or checking a code.
    Otp,
}

impl Operation {
    pub(super) fn message(self) -> Message {
        match self {
            Operation::Request => Message::OPERATION_REQUEST,
            Operation::Qrcode => Message::OPERATION_QRCODE,
            Operation::ScanStatus => Message::OPERATION_SCAN_STATUS,
            Operation::AuthorizeUrl => Message::OPERATION_AUTHORIZE_URL,
            Operation::Callback => Message::OPERATION_CALLBACK,
            Operation::Verify => Message::OPERATION_VERIFY,
            Operation::Logout => Message::OPERATION_LOGOUT,
            Operation::SwitchRole => Message::OPERATION_SWITCH_ROLE,
            Operation::Bind => Message::OPERATION_BIND,
            Operation::Sessions => Message::OPERATION_SESSIONS,
            Operation::Admin => Message::OPERATION_ADMIN,
            Operation::Agent => Message::OPERATION_AGENT,
            Operation::Otp => Message::OPERATION_OTP,
        }
    }
}
