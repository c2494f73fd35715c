//! The result of a callback as the store keeps it for repeated requests. It holds no token: the token of the session is
//! minted again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::callback::CallbackResult;
use crate::domain::session::SessionId;
use crate::domain::ticket::{ConfirmId, ScanId};
use crate::error::{BadRequest, Error, Forbidden, Operation, Part};
use crate::signin::tickets::phone::ScanResult;

/// A result that a repeated request gets, too. It has no `Debug`: it confirms a scan or binds an account.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StoredResult {
    SignedIn { to: String, session: SessionId, expires_in: u64, flow: Option<String> },
    Scanned { scan_id: ScanId, confirm: ConfirmId, lifetime: Duration },
    Confirmed,
    BindFirst { proof: String, lifetime: Duration },
    Failed { to: Option<String>, refusal: StoredRefusal },
}

/// The errors of a callback that another try cannot change.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StoredRefusal {
    Code,
    Flow,
    TicketEnded,
    Forbidden(Forbidden),
    Failure(Part),
}

impl StoredResult {
    /// `None` for a result that may differ next time, because the code was not used up.
    pub(super) fn of(result: &CallbackResult) -> Option<Self> {
        Some(match result {
            CallbackResult::SignedIn { to, session, expires_in, flow, .. } => StoredResult::SignedIn {
                to: to.clone(),
                session: session.clone(),
                expires_in: *expires_in,
                flow: flow.clone(),
            },
            CallbackResult::Scanned(ScanResult::NeedsConfirmation { scan_id, confirm, lifetime }) => {
                StoredResult::Scanned { scan_id: scan_id.clone(), confirm: confirm.clone(), lifetime: *lifetime }
            }
            CallbackResult::Scanned(ScanResult::Confirmed) => StoredResult::Confirmed,
            CallbackResult::BindFirst { proof, lifetime } => {
                StoredResult::BindFirst { proof: proof.reveal().clone(), lifetime: *lifetime }
            }
            CallbackResult::Failed { to, error, .. } => {
                StoredResult::Failed { to: to.clone(), refusal: StoredRefusal::of(error)? }
            }
        })
    }

    /// Whether the platform confirmed the code.
    pub(super) fn is_success(&self) -> bool {
        !matches!(self, StoredResult::Failed { .. })
    }
}

impl StoredRefusal {
    fn of(error: &Error) -> Option<Self> {
        match error {
            Error::BadRequest(BadRequest::SignInCode) => Some(StoredRefusal::Code),
            Error::BadRequest(BadRequest::SignInFlow) => Some(StoredRefusal::Flow),
            Error::BadRequest(BadRequest::TicketEnded) => Some(StoredRefusal::TicketEnded),
            Error::Forbidden(reason) => Some(StoredRefusal::Forbidden(reason.clone())),
            Error::Unexpected { part, .. } => Some(StoredRefusal::Failure(*part)),
            _ => None,
        }
    }

    pub(super) fn into_error(self) -> Error {
        match self {
            StoredRefusal::Code => BadRequest::SignInCode.into(),
            StoredRefusal::Flow => BadRequest::SignInFlow.into(),
            StoredRefusal::TicketEnded => BadRequest::TicketEnded.into(),
            StoredRefusal::Forbidden(reason) => reason.into(),
            StoredRefusal::Failure(part) => {
                Error::unexpected(part, "the first request of this callback failed").with_operation(Operation::Callback)
            }
        }
    }
}
