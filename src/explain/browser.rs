//! What a browser makes of an answer: whether a page of another origin may send the request and read the response.

use super::Explainer;
use crate::error::Error;
use crate::pipeline::Permit;
use crate::pipeline::cors::CrossOrigin;
use crate::pipeline::route::Target;
use crate::rules::case::SampleRequest;
use crate::rules::{CorsHandling, Rule};

/// The methods that browsers send whatever the answer to a preflight lists (CORS-safelisted methods of the Fetch standard).
const ALWAYS_SENT: [&str; 3] = ["GET", "HEAD", "POST"];

impl Explainer<'_> {
    /// Notes about the browser of a request with an `Origin`; none without one.
    pub(super) fn browser_notes(
        &self,
        sample: &SampleRequest,
        target: Option<&Target>,
        verdict: &Result<Permit, Error>,
    ) -> Vec<String> {
        let Some(origin) = &sample.origin else { return Vec::new() };
        if let Some(method) = &sample.requested_method {
            return preflight_note(method, verdict).into_iter().collect();
        }
        let rule = match target {
            Some(Target::Rule(rule)) => Some(&**rule),
            _ => None,
        };
        let handshake = rule.and_then(|_| self.handshake_note(&sample.method, origin));
        self.reading_note(origin, rule, verdict).into_iter().chain(handshake).collect()
    }

    /// Whether a page can read the response.
    fn reading_note(&self, origin: &str, rule: Option<&Rule>, verdict: &Result<Permit, Error>) -> Option<String> {
        if origin == self.own_origin {
            return None;
        }
        if rule.is_some_and(|rule| rule.cors == CorsHandling::Upstream) && verdict.is_ok() {
            return Some(format!("the upstream decides whether a page of {origin} can read the response"));
        }
        match self.cors.cross_origin(Some(origin.as_bytes())) {
            CrossOrigin::Allowed(_) => None,
            CrossOrigin::Off | CrossOrigin::Denied => Some(format!(
                "a page of {origin} cannot read the response: the origin is neither in [clients] nor in cors.origins"
            )),
        }
    }

    /// What a WebSocket handshake of the page would get on the same path.
    fn handshake_note(&self, method: &str, origin: &str) -> Option<String> {
        let is_foreign = !self.websocket_origins.iter().any(|own| own.eq_ignore_ascii_case(origin));
        (method == "GET" && is_foreign).then(|| {
            format!(
                "a WebSocket handshake from a page of {origin} is refused with 1003: the origin is neither in [clients] nor \
                 in websocket.origins"
            )
        })
    }
}

/// What a browser does if the path does not have the announced method.
fn preflight_note(method: &str, verdict: &Result<Permit, Error>) -> Option<String> {
    let methods = match verdict {
        Ok(Permit::Preflight(answer)) => &answer.methods,
        Err(Error::MethodNotAllowed { .. }) => {
            return Some(format!("the browser blocks the request: the path has no {method}"));
        }
        Ok(Permit::Own(_) | Permit::Upstream(_) | Permit::Redirect(_)) | Err(_) => return None,
    };
    if methods.split(", ").any(|listed| listed == method) {
        return None;
    }
    Some(if ALWAYS_SENT.contains(&method) {
        format!("the path has no {method}; browsers send one all the same, and it gets 1405")
    } else {
        format!("the browser blocks the request: the path has no {method}")
    })
}
