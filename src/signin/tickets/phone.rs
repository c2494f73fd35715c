//! The phone's part of QR-code sign-in: the scan and the confirmation.

use std::time::Duration;

use super::{Tickets, attempt_for};
use crate::config::QrConfirm;
use crate::domain::clock::Timestamp;
use crate::domain::device::ClientDevice;
use crate::domain::secret::{constant_time_eq, random_name};
use crate::domain::ticket::{ConfirmId, ScanId, Scanner, Ticket, TicketState};
use crate::domain::write::WriteOutcome;
use crate::error::{BadRequest, Error};

/// Invalid platform codes that a ticket accepts before it is refused.
const MAX_INVALID_CODES: u8 = 5;

/// The next step after a scan.
#[derive(Debug, Clone)]
pub enum ScanResult {
    /// The phone must confirm.
    NeedsConfirmation {
        /// The scanned code.
        scan_id: ScanId,
        /// Proves that a later request comes from the phone that scanned.
        confirm: ConfirmId,
        /// How long a ticket lives.
        lifetime: Duration,
    },
    /// The scan alone confirmed the sign-in.
    Confirmed,
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
    pub requested_at: Timestamp,
    /// How long ago that is.
    pub ago: Duration,
    /// The two digits that both screens show.
    pub number: String,
}

/// The user's choice on the phone's confirm page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfirmChoice {
    /// Sign the browser in.
    Confirm,
    /// Refuse the sign-in.
    Cancel,
}

impl Tickets {
    /// Marks a ticket as scanned, after the phone has returned from the platform.
    pub(in crate::signin) async fn scan(
        &self,
        scan_id: &ScanId,
        by: Scanner,
        device: &ClientDevice,
    ) -> Result<ScanResult, Error> {
        let ticket = self.open_ticket(scan_id).await?;
        if ticket.state != TicketState::Waiting {
            return Err(BadRequest::TicketEnded.into());
        }
        let confirm = ConfirmId::new(random_name(32));
        let (state, result) = match self.confirm {
            QrConfirm::Tap => (
                TicketState::Scanned { by, confirm: confirm.digest() },
                ScanResult::NeedsConfirmation {
                    scan_id: scan_id.clone(),
                    confirm,
                    lifetime: self.config.lifetime.get(),
                },
            ),
            QrConfirm::Auto => {
                (TicketState::Confirmed { by, request_id: device.request_id.clone() }, ScanResult::Confirmed)
            }
        };
        match self.advance(&ticket, state).await? {
            WriteOutcome::Applied => Ok(result),
            WriteOutcome::Conflict => Err(BadRequest::TicketEnded.into()),
        }
    }

    /// Ends a ticket whose code was scanned by someone who may not sign in, so that the waiting browser learns it. A
    /// ticket that another phone has scanned stays with that phone.
    pub(in crate::signin) async fn refuse(&self, scan_id: &ScanId) -> Result<(), Error> {
        let ticket = self.open_ticket(scan_id).await?;
        if ticket.state == TicketState::Waiting {
            // If another change came first, it stands.
            self.advance(&ticket, TicketState::Refused).await?;
        }
        Ok(())
    }

    /// Counts a code that the platform rejected. A phone sends one occasionally; a client that keeps sending them is
    /// guessing codes, and each guess costs a call to the platform, so the ticket is refused.
    pub(in crate::signin) async fn count_invalid_code(&self, ticket: &Ticket) -> Result<(), Error> {
        let misses = ticket.misses.saturating_add(1);
        let state = if misses >= MAX_INVALID_CODES { TicketState::Refused } else { ticket.state.clone() };
        let counted = Ticket { version: ticket.version.next(), state, misses, ..ticket.clone() };
        // If another change came first, it stands and this miss is not counted.
        self.store.advance(&counted, ticket.version).await?;
        Ok(())
    }

    /// The sign-in request to show on the phone that scanned the code.
    pub async fn confirm_prompt(&self, scan_id: &ScanId, confirm: &ConfirmId) -> Result<ConfirmPrompt, Error> {
        let ticket = self.open_ticket(scan_id).await?;
        let by = scanner(&ticket, confirm)?;
        Ok(ConfirmPrompt {
            name: by.name,
            address: ticket.address,
            user_agent: ticket.user_agent,
            requested_at: ticket.created_at,
            ago: ticket.created_at.until(self.clock.now()),
            number: ticket.number.to_string(),
        })
    }

    /// Confirms or cancels a sign-in, for the phone that scanned the code.
    pub async fn resolve_scan(
        &self,
        scan_id: &ScanId,
        confirm: &ConfirmId,
        choice: ConfirmChoice,
        device: &ClientDevice,
    ) -> Result<(), Error> {
        let ticket = self.open_ticket(scan_id).await?;
        let by = scanner(&ticket, confirm)?;
        let state = match choice {
            ConfirmChoice::Confirm => TicketState::Confirmed { by: by.clone(), request_id: device.request_id.clone() },
            ConfirmChoice::Cancel => TicketState::Cancelled,
        };
        match self.advance(&ticket, state).await? {
            WriteOutcome::Applied if choice == ConfirmChoice::Cancel => {
                let error = BadRequest::ScanDeclined.into();
                let mut attempt = attempt_for(&ticket, device);
                attempt.set_proved(&by.corp_id, &by.employee_id);
                attempt.platform_account.clone_from(&by.platform_account);
                self.login_log.record_refusal(&attempt, &error).await;
                Ok(())
            }
            WriteOutcome::Applied => Ok(()),
            WriteOutcome::Conflict => Err(BadRequest::TicketEnded.into()),
        }
    }
}

/// Who scanned the ticket, for the phone that holds its confirm id.
fn scanner(ticket: &Ticket, confirm: &ConfirmId) -> Result<Scanner, Error> {
    match &ticket.state {
        TicketState::Scanned { by, confirm: expected }
            if constant_time_eq(expected.as_str().as_bytes(), confirm.digest().as_str().as_bytes()) =>
        {
            Ok(by.clone())
        }
        _ => Err(BadRequest::TicketEnded.into()),
    }
}
