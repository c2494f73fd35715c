//! `POST /api/auth/bind`, and the page that leads there.

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;

use super::incoming::Incoming;
use super::oauth2_callback::error_page;
use crate::error::{Error, Forbidden};
use crate::pages::{self, UnboundMember};
use crate::pipeline::Arrival;
use crate::reply::{Cookie, Reply};
use crate::signin::SignIn;
use crate::signin::bind::Binding;
use crate::signin::session::LoggedIn;

/// The cookie that lets somebody bind.
const BIND_COOKIE: &str = "deskgate_bind";

/// Where somebody binds; the proof goes there and below, and nowhere else.
const BIND_PATH: &str = "/api/auth/bind";

/// Where the page is.
pub const BIND_PAGE: &str = "/api/auth/bind/page";

/// What is asked.
#[derive(Debug, Deserialize)]
pub struct Bind {
    employee_id: String,
    corp_id: Option<String>,
}

/// Binds the caller to an existing employee and signs them in.
pub async fn bind(signin: &SignIn, request: Bind, incoming: &Incoming) -> Result<LoggedIn, Error> {
    let binding = Binding {
        employee_id: &request.employee_id,
        corp_id: request.corp_id.as_deref(),
        proof: incoming.cookie(BIND_COOKIE),
    };
    signin.bind(binding, &incoming.device).await
}

/// The page for somebody who has just proved at the platform who they are, and is no employee of ours yet.
pub fn page(signin: &SignIn, incoming: &Incoming, arrival: &Arrival) -> Reply {
    let claim = incoming.cookie(BIND_COOKIE).and_then(|proof| signin.bind_claim(proof));
    match claim {
        Some(claim) => {
            let member = UnboundMember {
                corp_id: claim.corp_id.as_str(),
                employee_id: claim.employee_id.as_str(),
                name: &claim.name,
                home: &claim.home,
            };
            Reply::page(StatusCode::OK, arrival.language, pages::bind(arrival.language, &member))
        }
        None => error_page(arrival, &Forbidden::BindProof.into()),
    }
}

/// The proof, as the browser keeps it.
pub fn proof_cookie(proof: &str, lifetime: Duration) -> Cookie {
    Cookie { name: BIND_COOKIE.to_owned(), value: proof.to_owned(), path: BIND_PATH, max_age: lifetime.as_secs() }
}

/// Takes the proof back: it has done its work.
pub fn spent_proof() -> Cookie {
    proof_cookie("", Duration::ZERO)
}
