//! The server API. Every answer is HTTP 200; `errcode` in the body tells.

use std::net::{IpAddr, SocketAddr};

use axum::body::Bytes;
use axum::extract::{ConnectInfo, FromRequest, FromRequestParts, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use serde_json::{Value, json};

use super::ledger::Ledger;
use super::ledger::tokens::{Holder, TokenState};
use super::members::{App, CORP_ID};
use super::query::Parameters;
use super::refusal::{self, ADDRESS_NOT_ALLOWED, API_FORBIDDEN, INVALID_TOKEN, NOT_JSON, Refusal, TOKEN_EXPIRED};
use super::switches::StaleErrcode;
use super::{Shared, refusal::TOKEN_MISSING};

pub mod connected;

pub mod contacts;

pub mod identity;

pub mod tokens;

/// The fields of a success, or why not.
type Outcome = Result<Value, Refusal>;

/// One call: who asks what.
pub struct Call {
    peer: IpAddr,
    parameters: Parameters,
    body: Bytes,
}

impl Call {
    /// The value of a query parameter.
    fn get(&self, name: &str) -> Option<&str> {
        self.parameters.get(name)
    }

    /// The JSON body.
    fn body(&self) -> Result<Value, Refusal> {
        serde_json::from_slice(&self.body).ok().filter(Value::is_object).ok_or(NOT_JSON)
    }
}

impl FromRequest<Shared> for Call {
    type Rejection = Response;

    async fn from_request(request: Request, shared: &Shared) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let parameters = Parameters::of(&parts.uri);
        let ConnectInfo(peer) = ConnectInfo::<SocketAddr>::from_request_parts(&mut parts, shared)
            .await
            .map_err(IntoResponse::into_response)?;
        let body = Bytes::from_request(Request::from_parts(parts, body), shared).await;
        Ok(Self { peer: peer.ip(), parameters, body: body.map_err(IntoResponse::into_response)? })
    }
}

/// A path that is asked with GET.
pub fn on_get(decide: fn(&mut Ledger, &Call) -> Outcome) -> MethodRouter<Shared> {
    get(async move |State(shared): State<Shared>, call: Call| answer(&shared, &call, decide))
}

/// A path that is asked with POST.
pub fn on_post(decide: fn(&mut Ledger, &Call) -> Outcome) -> MethodRouter<Shared> {
    post(async move |State(shared): State<Shared>, call: Call| answer(&shared, &call, decide))
}

/// Decides a call under one lock and dresses the answer.
fn answer(shared: &Shared, call: &Call, decide: fn(&mut Ledger, &Call) -> Outcome) -> Response {
    let mut ledger = shared.ledger();
    match decide(&mut ledger, call) {
        Ok(mut fields) => {
            fields["errcode"] = json!(0);
            fields["errmsg"] = json!("ok");
            refusal::body(&fields)
        }
        Err(refusal) => refusal.answer(ledger.now(), call.peer),
    }
}

/// Who calls, by the token; from an address that may.
fn holder(ledger: &Ledger, call: &Call) -> Result<Holder, Refusal> {
    let token = call.get("access_token").ok_or(TOKEN_MISSING)?;
    let stale = |own: Refusal| match ledger.switches.stale_token_errcode {
        Some(StaleErrcode::Invalid) => INVALID_TOKEN,
        Some(StaleErrcode::Expired) => TOKEN_EXPIRED,
        None => own,
    };
    let holder = match ledger.tokens.state(token, ledger.now()) {
        TokenState::Of(holder) => holder,
        TokenState::Expired => return Err(stale(TOKEN_EXPIRED)),
        TokenState::Withdrawn => return Err(stale(INVALID_TOKEN)),
        TokenState::Unknown => return Err(INVALID_TOKEN),
    };
    if ledger.switches.denies(call.peer) { Err(ADDRESS_NOT_ALLOWED) } else { Ok(holder) }
}

/// The application that calls for the main corporation. A connected corporation's token reads contacts
/// and nothing else.
fn app(ledger: &Ledger, call: &Call) -> Result<&'static App, Refusal> {
    let holder = holder(ledger, call)?;
    if holder.corp_id == CORP_ID { Ok(holder.app) } else { Err(API_FORBIDDEN) }
}
