//! A test's browser: asks, and follows nothing.

#![allow(clippy::disallowed_types, reason = "a browser of tests, not the product's HTTP client")]

use std::collections::HashMap;

use axum::http::{HeaderMap, StatusCode, header};
use url::Url;

use super::simulated::{CORP_ID, SimulatedPlatform};

/// What came back.
pub struct Seen {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body as text.
    pub text: String,
}

impl Seen {
    /// Where it redirects to.
    pub fn location(&self) -> &str {
        self.headers.get(header::LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("(none)")
    }
}

/// Opens an address.
pub async fn open(url: Url) -> Seen {
    let policy = reqwest::redirect::Policy::none();
    let client = reqwest::Client::builder().tls_certs_only([]).redirect(policy).no_proxy().build().unwrap();
    let answer = client.get(url).send().await.unwrap();
    Seen { status: answer.status(), headers: answer.headers().clone(), text: answer.text().await.unwrap() }
}

/// An authorize URL that the simulator accepts, changed and extended by `changes`; an empty value removes.
pub fn authorize_url(simulator: &SimulatedPlatform, changes: &[(&str, &str)]) -> Url {
    let mut pairs = vec![
        ("appid", CORP_ID),
        ("redirect_uri", "https://desk.example/api/auth/oauth2/callback"),
        ("response_type", "code"),
        ("scope", "snsapi_base"),
        ("state", "auth_login"),
    ];
    for (name, value) in changes {
        pairs.retain(|(known, _)| known != name);
        if !value.is_empty() {
            pairs.push((name, value));
        }
    }
    let mut url = simulator.authorize_url();
    url.query_pairs_mut().extend_pairs(pairs);
    url
}

/// The code that the platform gives for a member, with these changes to the authorize URL.
pub async fn code_with(simulator: &SimulatedPlatform, changes: &[(&str, &str)]) -> String {
    let seen = open(authorize_url(simulator, changes)).await;
    assert_eq!(seen.status, StatusCode::FOUND, "{}", seen.text);
    let target = Url::parse(seen.location()).unwrap();
    let query: HashMap<_, _> = target.query_pairs().collect();
    query["code"].clone().into_owned()
}

/// The code that the platform gives for a member.
pub async fn code_of(simulator: &SimulatedPlatform, who: &str) -> String {
    code_with(simulator, &[("as", who)]).await
}
