//! A browser for unit tests; it does not follow redirects.

#![allow(clippy::disallowed_types, reason = "a browser of tests, not the product's HTTP client")]

use std::collections::HashMap;

use axum::http::{HeaderMap, StatusCode, header};
use url::Url;

use crate::demo::{CORP_ID, SimulatedPlatform};

/// A response with its body as text.
pub struct Seen {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Seen {
    /// The redirect's target, or `(none)`.
    pub fn location(&self) -> &str {
        self.headers.get(header::LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("(none)")
    }
}

/// Decodes the character references that templates write.
pub fn unescape(html: &str) -> String {
    let pairs = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#x27;", "'"), ("&#x2f;", "/"), ("&amp;", "&")];
    pairs.into_iter().fold(html.to_owned(), |text, (reference, character)| text.replace(reference, character))
}

pub async fn open(url: Url) -> Seen {
    let policy = reqwest::redirect::Policy::none();
    let client = reqwest::Client::builder().tls_certs_only([]).redirect(policy).no_proxy().build().unwrap();
    let answer = client.get(url).send().await.unwrap();
    Seen { status: answer.status(), headers: answer.headers().clone(), text: answer.text().await.unwrap() }
}

/// Builds an authorize URL that the simulator accepts, with `changes` applied; an empty value removes a parameter.
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

/// Obtains a code with these changes to the authorize URL.
pub async fn code_with(simulator: &SimulatedPlatform, changes: &[(&str, &str)]) -> String {
    let seen = open(authorize_url(simulator, changes)).await;
    assert_eq!(seen.status, StatusCode::FOUND, "{}", seen.text);
    let target = Url::parse(seen.location()).unwrap();
    let query: HashMap<_, _> = target.query_pairs().collect();
    query["code"].clone().into_owned()
}

/// Obtains a code for a member.
pub async fn code_of(simulator: &SimulatedPlatform, who: &str) -> String {
    code_with(simulator, &[("as", who)]).await
}
