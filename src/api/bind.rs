//! `POST /api/auth/bind`, and the page that leads there.

use http::StatusCode;
use serde::Deserialize;

use super::cookies;
use super::error_page::error_page;
use super::request::ApiRequest;
use crate::error::{Error, Forbidden};
use crate::pages::{self, UnboundMember};
use crate::pipeline::Arrival;
use crate::reply::Reply;
use crate::signin::binding::{AccountBinding, BindRequest};
use crate::signin::issuer::IssuedToken;

/// The body of a bind request.
#[derive(Debug, Deserialize)]
pub struct BindBody {
    employee_id: String,
    corp_id: Option<String>,
}

/// Binds the caller to an existing employee and signs them in.
pub async fn bind(binding: &AccountBinding, body: BindBody, request: &ApiRequest) -> Result<IssuedToken, Error> {
    let bind_request = BindRequest {
        employee_id: &body.employee_id,
        corp_id: body.corp_id.as_deref(),
        proof: cookies::bind_proof_value(request),
    };
    binding.bind(bind_request, &request.device).await
}

/// The page for a member who has just signed in at the platform and has no employee account yet.
pub fn page(binding: &AccountBinding, request: &ApiRequest, arrival: &Arrival) -> Reply {
    match cookies::bind_proof_value(request).and_then(|proof| binding.claim(proof)) {
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
