//! `GET /api/auth/oauth2/callback`

use url::form_urlencoded;

use super::Api;
use super::bind::{self, BIND_PAGE};
use super::incoming::Incoming;
use super::oauth2_url::{self, FLOW_COOKIE};
use super::qr_confirm::{CONFIRM_COOKIE, CONFIRM_PATH};
use crate::error::Error;
use crate::pages::{self, Notice};
use crate::pipeline::Arrival;
use crate::reply::{Cookie, Reply};
use crate::signin::oauth2::{Callback, Return};
use crate::signin::ticket::Scanned;

/// Where the browser goes after the platform.
pub async fn answer(api: &Api, incoming: &Incoming, arrival: &Arrival) -> Reply {
    let flows: Vec<String> = incoming
        .cookies
        .iter()
        .filter(|(name, _)| name.starts_with(FLOW_COOKIE))
        .map(|(_, value)| value.clone())
        .collect();
    if let Err(fault) = incoming.query.unambiguous() {
        return error_page(arrival, &fault.into());
    }
    let callback = Callback {
        parameter: &|name| incoming.query.first(name),
        state: incoming.query.first("state"),
        flows: &flows,
        referer: incoming.referer.as_deref(),
        fetch_site: incoming.fetch_site.as_deref(),
    };
    let returned = api.signin.callback(callback, &incoming.device).await;
    match &*returned {
        Return::SignedIn { to, token, expires_in, flow } => {
            let expires_in = expires_in.to_string();
            let fragment = [("token", token.reveal().as_str()), ("expires_in", &expires_in), ("token_type", "Bearer")];
            let reply = Reply::redirect(&with_fragment(to, &fragment));
            let done = flow.as_deref().and_then(|nonce| oauth2_url::ending(nonce, incoming));
            done.iter().fold(reply, |reply, cookie| reply.cookie(cookie, api.secure_cookies))
        }
        Return::Scanned(Scanned::Confirm { scan_id, confirm }) => {
            let cookie = Cookie {
                name: CONFIRM_COOKIE.to_owned(),
                value: format!("{scan_id}.{confirm}"),
                path: CONFIRM_PATH,
                max_age: api.signin.settings().ticket.lifetime.get().as_secs(),
            };
            Reply::redirect(CONFIRM_PATH).cookie(&cookie, api.secure_cookies)
        }
        Return::Scanned(Scanned::Confirmed) => {
            Reply::page(http::StatusCode::OK, arrival.language, pages::notice(arrival.language, Notice::Confirmed))
        }
        Return::BindFirst { proof } => {
            let lifetime = api.signin.settings().flow_lifetime;
            Reply::redirect(BIND_PAGE).cookie(&bind::proof_cookie(proof.reveal(), lifetime), api.secure_cookies)
        }
        Return::Failed { to, word, error } => failed(to.as_deref(), word, error, arrival),
    }
}

fn failed(to: Option<&str>, word: &str, error: &Error, arrival: &Arrival) -> Reply {
    let Some(to) = to else { return error_page(arrival, error) };
    let code = error.code().number().to_string();
    let text = error.message(arrival.language);
    Reply::redirect(&with_fragment(to, &[("error", word), ("error_code", &code), ("error_description", &text)]))
}

/// A plain page, for when no client's page is known.
pub fn error_page(arrival: &Arrival, error: &Error) -> Reply {
    let html = pages::error(arrival.language, error, arrival.request_id.as_str());
    Reply::page(error.code().status(), arrival.language, html).with_error_headers(error)
}

/// Fragments stay in the browser: no server, log or `Referer` sees them.
fn with_fragment(to: &str, pairs: &[(&str, &str)]) -> String {
    let fragment = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    // A `+` for a space is a form's way; in a fragment scripts expect `%20`.
    format!("{to}#{}", fragment.replace('+', "%20"))
}
