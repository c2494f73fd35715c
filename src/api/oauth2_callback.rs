//! `GET /api/auth/oauth2/callback`

use http::StatusCode;
use url::form_urlencoded;

use super::cookies;
use super::error_page::error_page;
use super::request::ApiRequest;
use crate::error::Error;
use crate::pages::{self, Notice};
use crate::pipeline::Arrival;
use crate::reply::{Cookie, Reply};
use crate::signin::oauth2::Oauth2Flow;
use crate::signin::oauth2::callback::{Callback, CallbackResult};
use crate::signin::tickets::phone::ScanResult;

/// The page that binds an employee account.
const BIND_PAGE: &str = "/api/auth/bind/page";

/// Completes the flow and sends the browser on.
pub async fn complete(oauth2: &Oauth2Flow, request: &ApiRequest, arrival: &Arrival) -> (Reply, Option<Cookie>) {
    if let Err(fault) = request.query.check_unambiguous() {
        return (error_page(arrival, &fault.into()), None);
    }
    let callback = Callback {
        parameter: &|name| request.query.first(name),
        state: request.query.first("state"),
        flows: &cookies::flow_values(request),
        referer: request.referer.as_deref(),
        fetch_site: request.fetch_site.as_deref(),
    };
    match oauth2.callback(callback, &request.device).await {
        CallbackResult::SignedIn { to, token, expires_in, flow, .. } => {
            let expires_in = expires_in.to_string();
            let fragment = [("token", token.reveal().as_str()), ("expires_in", &expires_in), ("token_type", "Bearer")];
            let cookie = flow.as_deref().and_then(|nonce| cookies::complete_flow(nonce, request));
            (Reply::redirect(&with_fragment(&to, &fragment)), cookie)
        }
        CallbackResult::Scanned(ScanResult::NeedsConfirmation { scan_id, confirm, lifetime }) => {
            (Reply::redirect(cookies::CONFIRM_PATH), Some(cookies::confirm(&scan_id, &confirm, lifetime)))
        }
        CallbackResult::Scanned(ScanResult::Confirmed) => {
            let html = pages::notice(arrival.language, Notice::Confirmed);
            (Reply::page(StatusCode::OK, arrival.language, html), None)
        }
        CallbackResult::BindFirst { proof, lifetime } => {
            (Reply::redirect(BIND_PAGE), Some(cookies::bind_proof(proof.reveal(), lifetime)))
        }
        CallbackResult::Failed { to: Some(to), word, error } => {
            (Reply::redirect_with_error(&with_error(&to, word, &error, arrival), &error), None)
        }
        CallbackResult::Failed { to: None, error, .. } => (error_page(arrival, &error), None),
    }
}

fn with_error(to: &str, word: &str, error: &Error, arrival: &Arrival) -> String {
    let code = error.code().number().to_string();
    let text = error.message(arrival.language);
    with_fragment(to, &[("error", word), ("error_code", &code), ("error_description", &text)])
}

/// Appends a fragment. Fragments stay in the browser: no server, log or `Referer` sees them.
fn with_fragment(to: &str, pairs: &[(&str, &str)]) -> String {
    let fragment = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    // Form encoding writes a space as `+`, but scripts expect `%20` in a fragment.
    format!("{to}#{}", fragment.replace('+', "%20"))
}
