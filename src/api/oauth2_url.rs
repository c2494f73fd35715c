//! `GET /api/auth/oauth2/url`

use std::time::Duration;

use serde::Serialize;

use super::incoming::Incoming;
use crate::error::Error;
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

/// Begins a flow back to `redirect_uri`.
pub fn build(signin: &SignIn, redirect_uri: &str) -> Result<(AuthorizeUrl, Begun), Error> {
    let begun = signin.begin_flow(redirect_uri)?;
    let url = AuthorizeUrl { authorize_url: begun.authorize_url.clone(), redirect_uri: redirect_uri.to_owned() };
    Ok((url, begun))
}

/// The flow's cookie, and the removal of those that pile up. Browsers send older cookies first.
pub fn cookies(begun: &Begun, incoming: &Incoming, lifetime: Duration) -> Vec<Cookie> {
    let present: Vec<&String> =
        incoming.cookies.iter().map(|(name, _)| name).filter(|name| name.starts_with(FLOW_COOKIE)).collect();
    let surplus = (present.len() + 1).saturating_sub(MOST_FLOWS);
    let removed = present.into_iter().take(surplus).map(|name| Cookie {
        name: name.clone(),
        value: String::new(),
        path: FLOW_PATH,
        max_age: 0,
    });
    let own = Cookie {
        name: format!("{FLOW_COOKIE}{}", begun.nonce),
        value: begun.sealed.clone(),
        path: FLOW_PATH,
        max_age: lifetime.as_secs(),
    };
    removed.chain([own]).collect()
}

/// A flow that is done: its cookie goes soon, and not only when its time is up.
pub fn ending(nonce: &str, incoming: &Incoming) -> Option<Cookie> {
    let name = format!("{FLOW_COOKIE}{nonce}");
    let value = incoming.cookie(&name)?.to_owned();
    Some(Cookie { name, value, path: FLOW_PATH, max_age: AFTERLIFE })
}
