//! `GET /api/auth/oauth2/url`

use std::time::Duration;

use serde::Serialize;

use super::incoming::Incoming;
use crate::error::{BadRequest, Error};
use crate::reply::Cookie;
use crate::signin::SignIn;
use crate::signin::oauth2::Begun;

/// Every flow has a cookie of its own, so that many tabs do not take each other's.
pub const FLOW_COOKIE: &str = "deskgate_flow_";

/// Where flow cookies are sent back to.
pub const FLOW_PATH: &str = "/api/auth/oauth2";

/// More tabs than anybody signs in with at once; beyond that the oldest flow is forgotten.
const MOST_FLOWS: usize = 16;

/// How long a flow's cookie stays after its end: the platform's clients may come back twice.
const AFTERLIFE: u64 = 60;

/// The answer.
#[derive(Debug, Serialize)]
pub struct AuthorizeUrl {
    authorize_url: String,
    redirect_uri: String,
}

/// Most bytes of flow cookies that a browser is made to carry: more would not fit into a request's head.
const MOST_BYTES: usize = 8 * 1024;

/// Begins a flow back to `redirect_uri`. Only for scripts of pages of our own site: whoever else could make a
/// browser begin one could then hand it a code of theirs.
pub fn build(signin: &SignIn, redirect_uri: &str, incoming: &Incoming) -> Result<(AuthorizeUrl, Begun), Error> {
    let opened = incoming.fetch_mode.as_deref() == Some("navigate");
    if opened || incoming.fetch_site.as_deref() == Some("cross-site") {
        return Err(BadRequest::ScriptOnly.into());
    }
    let begun = signin.begin_flow(redirect_uri)?;
    let url = AuthorizeUrl { authorize_url: begun.authorize_url.clone(), redirect_uri: redirect_uri.to_owned() };
    Ok((url, begun))
}

/// The flow's cookie, and the removal of those that pile up. Browsers send older cookies first.
pub fn cookies(begun: &Begun, incoming: &Incoming, lifetime: Duration) -> Vec<Cookie> {
    let present = incoming.cookies.iter().filter(|(name, _)| name.starts_with(FLOW_COOKIE));
    let (mut flows, mut bytes) = (1, begun.sealed.len());
    // From the newest to the oldest, as long as there is room.
    let removed: Vec<Cookie> = present
        .rev()
        .filter(|(_, value)| {
            flows += 1;
            bytes += value.len();
            flows > MOST_FLOWS || bytes > MOST_BYTES
        })
        .map(|(name, _)| Cookie { name: name.clone(), value: String::new(), path: FLOW_PATH, max_age: 0 })
        .collect();
    let own = Cookie {
        name: format!("{FLOW_COOKIE}{}", begun.nonce),
        value: begun.sealed.clone(),
        path: FLOW_PATH,
        max_age: lifetime.as_secs(),
    };
    removed.into_iter().chain([own]).collect()
}

/// A flow that is done: its cookie goes soon, and not only when its time is up.
pub fn ending(nonce: &str, incoming: &Incoming) -> Option<Cookie> {
    let name = format!("{FLOW_COOKIE}{nonce}");
    let value = incoming.cookie(&name)?.to_owned();
    Some(Cookie { name, value, path: FLOW_PATH, max_age: AFTERLIFE })
}
