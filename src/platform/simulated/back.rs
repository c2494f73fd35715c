//! The way back to the application, with or without a code.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use url::Url;

use super::ledger::Ledger;
use super::members::CORP_ID;
use super::{pages, trust};

/// The longest `state` that the platform carries.
const LONGEST_STATE: usize = 128;

/// Where the application wants the browser back, and with what.
#[derive(Debug, Clone)]
pub struct Return {
    redirect_uri: Url,
    state: String,
}

impl Return {
    /// From the two parameters; the name of the one that is wrong otherwise.
    pub fn read(redirect_uri: Option<&str>, state: Option<&str>) -> Result<Self, &'static str> {
        let redirect_uri = redirect_uri.and_then(|text| Url::parse(text).ok());
        let redirect_uri = redirect_uri.filter(|url| matches!(url.scheme(), "http" | "https")).ok_or("redirect_uri")?;
        let state = state.unwrap_or_default();
        if state.len() > LONGEST_STATE {
            return Err("state");
        }
        if !state.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            // The documentation allows letters and digits only, but its own examples break the rule.
            tracing::warn!(state, "the platform documents only letters and digits in `state`");
        }
        Ok(Self { redirect_uri, state: state.to_owned() })
    }

    /// The domain that must be trusted.
    pub fn domain(&self) -> String {
        trust::domain(&self.redirect_uri)
    }

    /// Sends the browser back: with a code, or after a refusal with the state alone.
    pub fn answer(&self, ledger: &Ledger, code: Option<&str>) -> Response {
        let mut target = self.redirect_uri.clone();
        {
            // Appends to the query that is there already and keeps it as it is.
            let mut query = target.query_pairs_mut();
            if let Some(code) = code {
                query.append_pair("code", code);
            }
            query.append_pair("state", &self.state);
            if ledger.switches.return_appid {
                query.append_pair("appid", CORP_ID);
            }
        }
        if ledger.switches.duplicate_callback {
            return pages::twice(target.as_str());
        }
        redirect(target.as_str())
    }
}

/// A plain 302.
pub fn redirect(target: &str) -> Response {
    match HeaderValue::from_str(target) {
        Ok(target) => (StatusCode::FOUND, [(header::LOCATION, target)]).into_response(),
        // A parsed URL is plain ASCII, so this does not happen.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
