//! The cookies of the sign-in endpoints: their names, paths and lifetimes. Where the public URL is https the names
//! begin with `__Host-`; `reply` writes the prefix and `request` removes it. Every name begins with
//! [`own_cookie::PREFIX`](crate::domain::own_cookie::PREFIX), so that no upstream gets one.

use std::time::Duration;

use super::request::ApiRequest;
use crate::domain::ticket::{BrowserId, ConfirmId, ScanId};
use crate::reply::Cookie;
use crate::signin::oauth2::StartedFlow;

/// Identifies a browser when it polls; one for all its tabs.
const BROWSER: &str = "deskgate_browser";

/// Longer than any ticket lives; renewed with each ticket.
const BROWSER_LIFETIME: u64 = 24 * 3600;

/// Identifies the phone that scanned a code.
const CONFIRM: &str = "deskgate_confirm";

/// The path of the confirm page; the confirm cookie is sent nowhere else.
pub const CONFIRM_PATH: &str = "/api/auth/qr/confirm";

/// Holds the bind proof.
const BIND: &str = "deskgate_bind";

/// The path of the bind endpoint and its page; the bind proof is sent nowhere else.
const BIND_PATH: &str = "/api/auth/bind";

/// The prefix of flow cookies. Each flow has its own, so that several tabs can sign in at once.
const FLOW_PREFIX: &str = "deskgate_flow_";

/// The path that flow cookies are sent to.
const FLOW_PATH: &str = "/api/auth/oauth2";

/// Most flow cookies of a browser; beyond that the oldest is removed.
const MAX_FLOWS: usize = 16;

/// Most bytes of flow cookies of a browser: more would not fit into a request head.
const MAX_FLOW_BYTES: usize = 8 * 1024;

/// How long a completed flow's cookie stays valid: the platform's clients may repeat a callback.
const COMPLETED_FLOW_LIFETIME: u64 = 60;

/// The value of the browser cookie.
pub fn browser_value(request: &ApiRequest) -> Option<&str> {
    request.cookie(BROWSER)
}

/// The browser cookie.
pub fn browser(id: &BrowserId) -> Cookie {
    Cookie { name: BROWSER.to_owned(), value: id.to_string(), path: "/api/auth", max_age: BROWSER_LIFETIME }
}

/// The scan id and the confirm id in the confirm cookie.
pub fn confirm_value(request: &ApiRequest) -> Option<(ScanId, ConfirmId)> {
    let (scan_id, confirm) = request.cookie(CONFIRM)?.split_once('.')?;
    Some((ScanId::new(scan_id), ConfirmId::new(confirm)))
}

/// The confirm cookie.
pub fn confirm(scan_id: &ScanId, confirm: &ConfirmId, lifetime: Duration) -> Cookie {
    let value = format!("{scan_id}.{confirm}");
    Cookie { name: CONFIRM.to_owned(), value, path: CONFIRM_PATH, max_age: lifetime.as_secs() }
}

/// The value of the bind-proof cookie.
pub fn bind_proof_value(request: &ApiRequest) -> Option<&str> {
    request.cookie(BIND)
}

/// The bind-proof cookie.
pub fn bind_proof(proof: &str, lifetime: Duration) -> Cookie {
    Cookie { name: BIND.to_owned(), value: proof.to_owned(), path: BIND_PATH, max_age: lifetime.as_secs() }
}

/// Removes the bind-proof cookie.
pub fn remove_bind_proof() -> Cookie {
    bind_proof("", Duration::ZERO)
}

/// The values of all flow cookies, newest last: browsers send older cookies first.
pub fn flow_values(request: &ApiRequest) -> Vec<String> {
    flows(request).map(|(_, value)| value.clone()).collect()
}

/// The cookie of a new flow, and the removal of old ones that are too many.
pub fn start_flow(flow: &StartedFlow, request: &ApiRequest) -> Vec<Cookie> {
    let (mut count, mut bytes) = (1, flow.signed.len());
    // From the newest to the oldest, as long as there is room.
    let removed: Vec<Cookie> = flows(request)
        .rev()
        .filter(|(_, value)| {
            count += 1;
            bytes += value.len();
            count > MAX_FLOWS || bytes > MAX_FLOW_BYTES
        })
        .map(|(name, _)| Cookie { name: name.clone(), value: String::new(), path: FLOW_PATH, max_age: 0 })
        .collect();
    let new = Cookie {
        name: format!("{FLOW_PREFIX}{}", flow.nonce),
        value: flow.signed.clone(),
        path: FLOW_PATH,
        max_age: flow.lifetime.as_secs(),
    };
    removed.into_iter().chain([new]).collect()
}

/// Shortens the lifetime of a completed flow's cookie.
pub fn complete_flow(nonce: &str, request: &ApiRequest) -> Option<Cookie> {
    let name = format!("{FLOW_PREFIX}{nonce}");
    let value = request.cookie(&name)?.to_owned();
    Some(Cookie { name, value, path: FLOW_PATH, max_age: COMPLETED_FLOW_LIFETIME })
}

fn flows(request: &ApiRequest) -> impl DoubleEndedIterator<Item = &(String, String)> {
    request.cookies.iter().filter(|(name, _)| name.starts_with(FLOW_PREFIX))
}
