//! `POST /api/auth/bind`, the page that leads there, and the state of the link that it asks for.

use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::cookies;
use super::error_page::error_page;
use super::request::ApiRequest;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::link::Link;
use crate::error::Error;
use crate::pages::{self, UnboundMember};
use crate::pipeline::Arrival;
use crate::reply::Reply;
use crate::signin::binding::{AccountBinding, BindRequest};
use crate::signin::issuer::SignInGrant;

/// The body of a bind request.
#[derive(Debug, Deserialize)]
pub struct BindBody {
    employee_id: String,
    corp_id: Option<String>,
}

/// The state of the caller's link.
#[derive(Debug, Serialize)]
pub struct BindStatus {
    /// `none`, `pending` or `approved`.
    state: &'static str,
    /// The employee that the link leads to.
    employee_id: Option<EmployeeId>,
    /// The employee's corporation.
    corp_id: Option<CorpId>,
}

impl BindStatus {
    fn of(link: Option<Link>) -> Self {
        let state = link.as_ref().map_or("none", |link| link.state().as_str());
        let (employee_id, corp_id) = link.map(|link| (link.employee_id, link.corp_id)).unzip();
        Self { state, employee_id, corp_id }
    }
}

/// Binds the caller to an existing employee and signs them in, once the link is approved.
pub async fn bind(binding: &AccountBinding, body: BindBody, request: &ApiRequest) -> Result<SignInGrant, Error> {
    let bind_request = BindRequest {
        employee_id: &body.employee_id,
        corp_id: body.corp_id.as_deref(),
        proof: cookies::bind_proof_value(request),
    };
    binding.bind(bind_request, &request.device).await
}

/// Tells the bind page whether an administrator has approved the caller's link.
pub async fn status(binding: &AccountBinding, request: &ApiRequest) -> Result<BindStatus, Error> {
    let (_, link) = binding.claim(cookies::bind_proof_value(request)).await?;
    Ok(BindStatus::of(link))
}

/// The page for a member who has just signed in at the platform and is not linked to an employee.
pub async fn page(binding: &AccountBinding, request: &ApiRequest, arrival: &Arrival) -> Reply {
    let (claim, link) = match binding.claim(cookies::bind_proof_value(request)).await {
        Ok(claim) => claim,
        Err(error) => return error_page(arrival, &error),
    };
    let member = UnboundMember {
        corp_id: claim.account.corp_id.as_str(),
        user_id: claim.account.user_id.as_str(),
        name: &claim.name,
        home: &claim.home,
        requested: link.as_ref().map(|link| link.employee_id.as_str()),
        requested_corp: link.as_ref().map(|link| link.corp_id.as_str()),
    };
    Reply::page(StatusCode::OK, arrival.language, pages::bind(arrival.language, &member))
}
