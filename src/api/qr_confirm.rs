//! `GET` and `POST /api/auth/qr/confirm`: the phone's page after a scan.

use http::StatusCode;

use super::incoming::Incoming;
use super::oauth2_callback::error_page;
use crate::domain::secret::{Digest, constant_time_eq};
use crate::domain::ticket::{ConfirmId, ScanId};
use crate::error::{BadRequest, Error, Operation};
use crate::pages::{self, ConfirmDetails, Notice};
use crate::pipeline::Arrival;
use crate::reply::Reply;
use crate::signin::SignIn;
use crate::signin::ticket::Answer;

/// The cookie of the phone that scanned.
pub const CONFIRM_COOKIE: &str = "deskgate_confirm";

/// Where the page is.
pub const CONFIRM_PATH: &str = "/api/auth/qr/confirm";

/// Shows who asks, to the phone that scanned.
pub async fn page(signin: &SignIn, incoming: &Incoming, arrival: &Arrival) -> Reply {
    let shown = async {
        let (scan_id, confirm) = scan_of(incoming)?;
        let asking = signin.asking(&scan_id, &confirm).await?;
        let details = ConfirmDetails {
            name: &asking.name,
            address: &asking.address,
            user_agent: &asking.user_agent,
            requested_at: asking.at,
            ago: asking.ago,
            number: &asking.number,
        };
        Ok::<_, Error>(pages::confirm(arrival.language, &details, &form_proof(&confirm)))
    };
    match shown.await {
        Ok(html) => Reply::page(StatusCode::OK, arrival.language, html),
        Err(error) => error_page(arrival, &error.within(Operation::Callback)),
    }
}

/// Takes the answer. The form must be the one that we showed to this phone.
pub async fn answer(signin: &SignIn, incoming: &Incoming, form: &[(String, String)], arrival: &Arrival) -> Reply {
    let value = |name: &str| form.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
    let answered = async {
        let (scan_id, confirm) = scan_of(incoming)?;
        let proof = value("proof").unwrap_or_default();
        if !constant_time_eq(proof.as_bytes(), form_proof(&confirm).as_bytes()) {
            return Err(Error::BadRequest(BadRequest::Parameter("proof")));
        }
        let (answer, notice) = match value("answer") {
            Some("confirm") => (Answer::Confirm, Notice::Confirmed),
            Some("cancel") => (Answer::Cancel, Notice::Cancelled),
            _ => return Err(BadRequest::Parameter("answer").into()),
        };
        signin.answer_scan(&scan_id, &confirm, answer, &incoming.device).await?;
        Ok(notice)
    };
    match answered.await {
        Ok(notice) => Reply::page(StatusCode::OK, arrival.language, pages::notice(arrival.language, notice)),
        Err(error) => error_page(arrival, &error.within(Operation::Callback)),
    }
}

fn scan_of(incoming: &Incoming) -> Result<(ScanId, ConfirmId), Error> {
    let cookie = incoming.cookie(CONFIRM_COOKIE).and_then(|value| value.split_once('.'));
    let (scan_id, confirm) = cookie.ok_or(BadRequest::TicketOver)?;
    Ok((ScanId::new(scan_id), ConfirmId::new(confirm)))
}

/// What the form carries against forgery: a digest of the cookie, which no other site can read.
fn form_proof(confirm: &ConfirmId) -> String {
    Digest::of(&["confirm form", confirm.as_str()]).as_str().to_owned()
}
