//! `GET` and `POST /api/auth/qr/confirm`: the phone's page after a scan.

use http::StatusCode;

use super::cookies;
use super::error_page::error_page;
use super::request::ApiRequest;
use crate::domain::secret::{Digest, constant_time_eq};
use crate::domain::ticket::ConfirmId;
use crate::error::{BadRequest, Error, Operation};
use crate::pages::{self, ConfirmDetails, Notice};
use crate::pipeline::Arrival;
use crate::reply::Reply;
use crate::signin::tickets::Tickets;
use crate::signin::tickets::phone::ConfirmChoice;

/// Shows the sign-in request to the phone that scanned the code.
pub async fn page(tickets: &Tickets, request: &ApiRequest, arrival: &Arrival) -> Reply {
    let prompt = async {
        let (scan_id, confirm) = cookies::confirm_value(request).ok_or(BadRequest::TicketEnded)?;
        let prompt = tickets.confirm_prompt(&scan_id, &confirm).await?;
        let details = ConfirmDetails {
            name: &prompt.name,
            address: &prompt.address,
            user_agent: &prompt.user_agent,
            requested_at: prompt.requested_at,
            ago: prompt.ago,
            number: &prompt.number,
        };
        Ok::<_, Error>(pages::confirm(arrival.language, &details, &form_proof(&confirm)))
    };
    match prompt.await {
        Ok(html) => Reply::page(StatusCode::OK, arrival.language, html),
        Err(error) => error_page(arrival, &error.with_operation(Operation::Callback)),
    }
}

/// Confirms or cancels the sign-in. The form must be the one that was shown to this phone.
pub async fn submit(tickets: &Tickets, request: &ApiRequest, form: &[(String, String)], arrival: &Arrival) -> Reply {
    match resolve(tickets, request, form).await {
        Ok(notice) => Reply::page(StatusCode::OK, arrival.language, pages::notice(arrival.language, notice)),
        Err(error) => error_page(arrival, &error.with_operation(Operation::Callback)),
    }
}

async fn resolve(tickets: &Tickets, request: &ApiRequest, form: &[(String, String)]) -> Result<Notice, Error> {
    let field = |name: &str| form.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
    let (scan_id, confirm) = cookies::confirm_value(request).ok_or(BadRequest::TicketEnded)?;
    let proof = field("proof").unwrap_or_default();
    if !constant_time_eq(proof.as_bytes(), form_proof(&confirm).as_bytes()) {
        return Err(BadRequest::Parameter("proof").into());
    }
    let (choice, notice) = match field("answer") {
        Some("confirm") => (ConfirmChoice::Confirm, Notice::Confirmed),
        Some("cancel") => (ConfirmChoice::Cancel, Notice::Cancelled),
        _ => return Err(BadRequest::Parameter("answer").into()),
    };
    tickets.resolve_scan(&scan_id, &confirm, choice, &request.device).await?;
    Ok(notice)
}

/// The form's protection against cross-site requests: a digest of the cookie, which no other site can read.
fn form_proof(confirm: &ConfirmId) -> String {
    Digest::of(&["confirm form", confirm.as_str()]).as_str().to_owned()
}
