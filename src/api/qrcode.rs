//! `GET /api/auth/qrcode`

use crate::error::Error;
use crate::signin::ticket::IssuedTicket;
use crate::signin::{Device, SignIn};

/// Issues a ticket and the code that a phone scans for it.
pub async fn issue(signin: &SignIn, device: &Device) -> Result<IssuedTicket, Error> {
    signin.issue_ticket(device).await
}
