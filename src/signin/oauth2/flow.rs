//! The flow cookie: ties a callback to the browser that started the flow.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use url::Url;

use crate::config::ClientsConfig;
use crate::domain::client::Client;
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::device::ClientDevice;
use crate::domain::path;
use crate::domain::secret::{Digest, random_name};
use crate::token::cookie::{CookieKind, CookieSigner};

/// Longest `redirect_uri` in bytes.
const MAX_REDIRECT_URI: usize = 2048;

/// A flow that a browser started, as its signed cookie holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Flow {
    pub(super) nonce: String,
    pub(super) redirect_uri: String,
    pub(super) client: Client,
    /// The digest of the browser's `User-Agent`: a cookie that was copied into another browser is worth nothing there.
    browser: Digest,
    /// When the flow expires.
    pub(super) end: Timestamp,
}

impl Flow {
    /// The page that the flow returns to, without its query.
    pub(super) fn page(&self) -> &str {
        self.redirect_uri.split('?').next().unwrap_or_default()
    }
}

/// Signs and verifies flow cookies.
pub(in crate::signin) struct FlowCookies {
    pub(in crate::signin) cookies: Arc<CookieSigner>,
    pub(in crate::signin) clock: Clock,
    pub(in crate::signin) lifetime: Duration,
}

impl FlowCookies {
    /// A new flow, and the value of its cookie.
    pub(super) fn start(&self, redirect_uri: &str, client: Client, device: &ClientDevice) -> (Flow, String) {
        let end = self.clock.now().plus(self.lifetime);
        let (redirect_uri, browser) = (redirect_uri.to_owned(), browser_digest(device));
        let flow = Flow { nonce: random_name(22), redirect_uri, client, browser, end };
        let signed = self.cookies.sign(CookieKind::Flow, end, &flow);
        (flow, signed)
    }

    /// The flows of those cookies that are valid in this browser, oldest first.
    pub(super) fn verify(&self, values: &[String], device: &ClientDevice) -> Vec<Flow> {
        let (now, browser) = (self.clock.now(), browser_digest(device));
        let valid = values.iter().filter_map(|value| self.cookies.verify(CookieKind::Flow, value, self.lifetime, now));
        let mut flows: Vec<Flow> = valid.filter(|flow: &Flow| flow.browser == browser).collect();
        flows.sort_by_key(|flow| flow.end);
        flows
    }
}

/// Identifies a browser by its `User-Agent`, without the word for the phone's network: WeCom's client changes it when
/// the phone moves from Wi-Fi to mobile data.
fn browser_digest(device: &ClientDevice) -> Digest {
    let stable = device.user_agent.split(' ').filter(|word| !word.starts_with("NetType/"));
    Digest::of(&stable.collect::<Vec<&str>>())
}

/// The web client that a `redirect_uri` belongs to: same origin, and a path below the client's.
pub(super) fn client_of(clients: &ClientsConfig, redirect_uri: &str) -> Option<Client> {
    // The URL parser silently drops line breaks and turns backslashes into slashes, so only plain characters pass.
    let plain = redirect_uri.len() <= MAX_REDIRECT_URI
        && redirect_uri.bytes().all(|byte| byte.is_ascii_graphic() && !b"\\#\"<>^`{|}".contains(&byte));
    let url = plain.then(|| Url::parse(redirect_uri).ok()).flatten()?;
    let (_, after_scheme) = redirect_uri.split_once("://")?;
    let raw_path = &after_scheme[after_scheme.find(['/', '?'])?..];
    let raw_path = raw_path.split('?').next().unwrap_or_default();
    if !url.username().is_empty() || url.password().is_some() || path::canonical(raw_path.as_bytes()).is_err() {
        return None;
    }
    Client::ALL.into_iter().find(|client| {
        let own = clients.url(*client);
        own.origin() == url.origin() && url.path() == raw_path && raw_path.starts_with(own.path())
    })
}
