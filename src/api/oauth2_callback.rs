//! `GET /api/auth/oauth2/callback`

use url::form_urlencoded;

use super::Api;
use super::incoming::Incoming;
use super::oauth2_url::FLOW_COOKIE;
use super::qr_confirm::{CONFIRM_COOKIE, CONFIRM_PATH};
use crate::domain::language::Language;
use crate::error::{BadRequest, Error};
use crate::pages::{self, Notice};
use crate::pipeline::Arrival;
use crate::reply::{Cookie, Reply};
use crate::signin::oauth2::{Callback, Return};
use crate::signin::ticket::Scanned;

/// The cookie that lets somebody bind.
pub const BIND_COOKIE: &str = "deskgate_bind";

/// Where the browser goes after the platform.
pub async fn answer(api: &Api, incoming: &Incoming, arrival: &Arrival) -> Reply {
    let flows: Vec<String> = incoming
        .cookies
        .iter()
        .filter(|(name, _)| name.starts_with(FLOW_COOKIE))
        .map(|(_, value)| value.clone())
        .collect();
    let callback = match read(incoming, &flows) {
        Ok(callback) => callback,
        Err(fault) => return error_page(arrival, &fault.into()),
    };
    let returned = api.signin.callback(callback, &incoming.device).await;
    match &*returned {
        Return::SignedIn { to, token, expires_in } => {
            let expires_in = expires_in.to_string();
            let fragment = [("token", token.as_str()), ("expires_in", &expires_in), ("token_type", "Bearer")];
            Reply::redirect(&with_fragment(to, &fragment))
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
        Return::BindFirst { to, proof } => {
            let cookie = Cookie {
                name: BIND_COOKIE.to_owned(),
                value: proof.clone(),
                path: "/api/auth/bind",
                max_age: api.signin.settings().flow_lifetime.as_secs(),
            };
            let error = Error::Forbidden(crate::error::Forbidden::EmployeeUnknown);
            failed(to.as_deref(), "bind_required", &error, arrival).cookie(&cookie, api.secure_cookies)
        }
        Return::Failed { to, word, error } => {
            tracing::info!(
                target: "deskgate::audit",
                { request.id = arrival.request_id.as_str(), client.address = %arrival.client, reason = %error },
                "sign-in refused: {word}"
            );
            failed(to.as_deref(), word, error, arrival)
        }
    }
}

fn read<'a>(incoming: &'a Incoming, flows: &'a [String]) -> Result<Callback<'a>, BadRequest> {
    Ok(Callback {
        code: incoming.query.optional("code")?,
        state: incoming.query.optional("state")?,
        errcode: incoming.query.optional("errcode")?,
        flows,
        referer: incoming.referer.as_deref(),
        fetch_site: incoming.fetch_site.as_deref(),
    })
}

fn failed(to: Option<&str>, word: &str, error: &Error, arrival: &Arrival) -> Reply {
    let Some(to) = to else { return error_page(arrival, error) };
    let code = error.code().number().to_string();
    let text = error.message(arrival.language);
    Reply::redirect(&with_fragment(to, &[("error", word), ("error_code", &code), ("error_description", &text)]))
}

/// A plain page, for when no client's page is known.
pub fn error_page(arrival: &Arrival, error: &Error) -> Reply {
    let language: Language = arrival.language;
    Reply::page(error.code().status(), language, pages::error(language, error, arrival.request_id.as_str()))
}

/// Fragments stay in the browser: no server, log or `Referer` sees them.
fn with_fragment(to: &str, pairs: &[(&str, &str)]) -> String {
    let fragment = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    // A `+` for a space is a form's way; in a fragment scripts expect `%20`.
    format!("{to}#{}", fragment.replace('+', "%20"))
}
