//! Responses of the gateway itself: JSON envelopes, refusals, redirects, pages and their headers. What they say is left
//! to `api`, `pages` and `error`.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_MAX_AGE, ALLOW, CACHE_CONTROL,
    CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, LOCATION, REFERRER_POLICY, RETRY_AFTER, SET_COOKIE,
    VARY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Serialize;

use crate::domain::header_line::write_line;
use crate::domain::language::Language;
use crate::domain::own_cookie::{CookieScope, HOST_PREFIX};
use crate::domain::rate::{Exceeded, retry_after_seconds};
use crate::error::{Code, Error};
use crate::pipeline::Arrival;
use crate::pipeline::cors::PreflightAnswer;
use crate::pipeline::forward::REQUEST_ID;

mod etag;

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// Caches may reuse the response for five minutes without revalidation.
const CACHEABLE: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// What the answer to a preflight depends on.
const PREFLIGHT_VARY: HeaderValue =
    HeaderValue::from_static("Origin, Access-Control-Request-Method, Access-Control-Request-Headers");

/// Nothing from other origins and nothing inline; the QR code is a `data:` image.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);

/// The envelope of every JSON response.
#[derive(Serialize)]
struct Envelope<'a, T> {
    code: u16,
    message: &'a str,
    data: Option<T>,
    request_id: &'a str,
}

/// An `HttpOnly` cookie.
#[derive(Debug, Clone)]
pub struct Cookie {
    pub(crate) name: String,
    /// Only characters that need no quoting.
    pub(crate) value: String,
    /// Used on plain HTTP only: `__Host-` cookies are sent to all paths.
    pub(crate) path: &'static str,
    /// Seconds; 0 deletes the cookie.
    pub(crate) max_age: u64,
}

/// `RateLimit` and `RateLimit-Policy` of the IETF draft on rate-limit fields.
fn rate_fields(exceeded: &Exceeded, retry_after: Duration) -> Vec<(HeaderName, HeaderValue)> {
    let (by, window) = (exceeded.by, exceeded.window);
    let policy = format!("\"{by}\";q={};w={}", window.limit, retry_after_seconds(window.per));
    let limit = format!("\"{by}\";r=0;t={}", retry_after_seconds(retry_after));
    let fields = [(HeaderName::from_static("ratelimit-policy"), policy), (HeaderName::from_static("ratelimit"), limit)];
    fields.into_iter().filter_map(|(name, text)| Some((name, HeaderValue::from_str(&text).ok()?))).collect()
}

/// A response of the gateway itself.
#[derive(Debug)]
pub struct Reply {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    /// The code of the error that it tells the client about.
    error_code: Option<Code>,
}

impl Reply {
    fn new(status: StatusCode, content_type: HeaderValue, body: impl Into<Bytes>) -> Self {
        let headers = vec![
            (CONTENT_TYPE, content_type),
            (CACHE_CONTROL, HeaderValue::from_static("no-store")),
            (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        ];
        Self { status, headers, body: body.into(), error_code: None }
    }

    /// A success with its data.
    pub(crate) fn data(arrival: &Arrival, data: &impl Serialize) -> Self {
        Self::enveloped(arrival, StatusCode::OK, 0, "ok", Some(data))
    }

    /// An error, with the headers that belong to it.
    pub(crate) fn refusal(arrival: &Arrival, error: &Error) -> Self {
        Self::refusal_with(arrival, error, None::<&()>)
    }

    /// An error that also carries data.
    pub(crate) fn refusal_with(arrival: &Arrival, error: &Error, data: Option<&impl Serialize>) -> Self {
        let code = error.code();
        let message = error.message(arrival.language);
        let mut reply =
            Self::enveloped(arrival, error.status(), code.number(), &message, data).with_error_headers(error);
        if let Error::RateLimited { retry_after, exceeded } = error {
            reply.headers.extend(rate_fields(exceeded, *retry_after));
        }
        if let Error::MethodNotAllowed { allow } = error {
            reply.headers.extend(HeaderValue::from_str(allow).ok().map(|allow| (ALLOW, allow)));
        }
        if code == Code::WebSocketVersion {
            reply.headers.push((HeaderName::from_static("sec-websocket-version"), HeaderValue::from_static("13")));
        }
        reply
    }

    fn enveloped(
        arrival: &Arrival,
        status: StatusCode,
        code: u16,
        message: &str,
        data: Option<&impl Serialize>,
    ) -> Self {
        let envelope = Envelope { code, message, data, request_id: arrival.request_id.as_str() };
        // Structs with string keys always serialize.
        Self::new(status, JSON, serde_json::to_vec(&envelope).unwrap_or_default())
    }

    /// Cacheable JSON without the envelope, in a format that a standard defines.
    pub(crate) fn document(document: &impl Serialize) -> Self {
        Self::new(StatusCode::OK, JSON, serde_json::to_vec(document).unwrap_or_default()).cacheable()
    }

    /// Lets shared caches store the response and revalidate it by its entity tag. Only for responses that are the same
    /// for every client and are not under `/api/auth`.
    fn cacheable(mut self) -> Self {
        self.set(CACHE_CONTROL, CACHEABLE);
        self.headers.extend(etag::of(&self.body).map(|tag| (ETAG, tag)));
        self
    }

    /// Turns the response into a 304 if the client's `If-None-Match` has its entity tag.
    pub(crate) fn revalidated(mut self, request: &HeaderMap) -> Self {
        let matches = self.headers.iter().any(|(name, value)| *name == ETAG && etag::matches(value, request));
        if matches {
            self.status = StatusCode::NOT_MODIFIED;
            self.headers.retain(|(name, _)| *name != CONTENT_TYPE);
            self.body = Bytes::new();
        }
        self
    }

    /// An HTML page.
    pub(crate) fn page(status: StatusCode, language: Language, html: String) -> Self {
        let mut reply = Self::new(status, HTML, html);
        reply.headers.push((CONTENT_SECURITY_POLICY, PAGE_POLICY));
        reply.headers.push((REFERRER_POLICY, HeaderValue::from_static("no-referrer")));
        reply.headers.push((http::header::CONTENT_LANGUAGE, HeaderValue::from_static(language.tag())));
        reply
    }

    /// Adds `WWW-Authenticate` and `Retry-After` where the error has them, and is counted as a refusal.
    pub(crate) fn with_error_headers(mut self, error: &Error) -> Self {
        self.error_code = Some(error.code());
        self.headers.extend(error.challenge().map(|challenge| (WWW_AUTHENTICATE, challenge)));
        let wait = error.retry_after().map(|wait| (RETRY_AFTER, HeaderValue::from(retry_after_seconds(wait))));
        self.headers.extend(wait);
        self
    }

    /// A file of a page, not cacheable: its URL has no version, and a page must not run with another version's script.
    pub(crate) fn asset(content_type: &'static str, text: &'static str) -> Self {
        Self::new(StatusCode::OK, HeaderValue::from_static(content_type), text)
    }

    /// JSON that is already serialized.
    pub(crate) fn json(text: String) -> Self {
        Self::new(StatusCode::OK, JSON, text)
    }

    /// A redirect to a URL of the gateway or one that was checked. A URL that no header can hold becomes a 400.
    pub(crate) fn redirect(to: &str) -> Self {
        let mut reply = Self::new(StatusCode::FOUND, HTML, "");
        match HeaderValue::from_str(to) {
            Ok(location) => reply.headers.push((LOCATION, location)),
            Err(_) => reply.status = StatusCode::BAD_REQUEST,
        }
        reply.headers.push((REFERRER_POLICY, HeaderValue::from_static("no-referrer")));
        reply
    }

    /// A redirect whose URL tells the client's page about an error. Counted as a refusal.
    pub(crate) fn redirect_with_error(to: &str, error: &Error) -> Self {
        Self { error_code: Some(error.code()), ..Self::redirect(to) }
    }

    /// The code of the error that it tells the client about.
    pub(crate) fn error_code(&self) -> Option<Code> {
        self.error_code
    }

    /// A redirect of every method to the same path under our own URL.
    pub(crate) fn moved_permanently(to: &str) -> Self {
        let reply = Self::redirect(to);
        let status = if reply.status == StatusCode::FOUND { StatusCode::PERMANENT_REDIRECT } else { reply.status };
        Self { status, ..reply }
    }

    /// The answer to a preflight. The allowed origin is added as to every response.
    pub(crate) fn preflight(answer: &PreflightAnswer) -> Self {
        let listed = |name: HeaderName, list: &str| {
            let value = HeaderValue::from_str(list).ok().filter(|value| !value.is_empty());
            value.map(|value| (name, value))
        };
        let headers = [
            Some((VARY, PREFLIGHT_VARY)),
            listed(ALLOW, &answer.methods),
            listed(ACCESS_CONTROL_ALLOW_METHODS, &answer.methods),
            listed(ACCESS_CONTROL_ALLOW_HEADERS, &answer.headers),
            Some((ACCESS_CONTROL_MAX_AGE, answer.max_age.clone())),
        ];
        Self {
            status: StatusCode::NO_CONTENT,
            headers: headers.into_iter().flatten().collect(),
            body: Bytes::new(),
            error_code: None,
        }
    }

    /// Adds a cookie.
    pub(crate) fn cookie(mut self, cookie: &Cookie, scope: CookieScope) -> Self {
        let Cookie { name, value, path, max_age } = cookie;
        let (prefix, path, secure) = match scope {
            CookieScope::Host => (HOST_PREFIX, "/", "; Secure"),
            CookieScope::Plain => ("", *path, ""),
        };
        let text = format!("{prefix}{name}={value}; Path={path}; Max-Age={max_age}; HttpOnly; SameSite=Lax{secure}");
        self.headers.extend(HeaderValue::from_str(&text).ok().map(|value| (SET_COOKIE, value)));
        self
    }

    fn set(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.retain(|(present, _)| *present != name);
        self.headers.push((name, value));
    }

    /// The complete response.
    pub(crate) fn into_response(self, arrival: &Arrival) -> http::Response<Bytes> {
        let length = self.body.len();
        let mut response = http::Response::new(self.body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.reserve(self.headers.len() + 4);
        for (name, value) in self.headers {
            headers.append(name, value);
        }
        // In a 304 it would be the length of the response that the client has cached; a 204 must not have it.
        if !matches!(self.status, StatusCode::NOT_MODIFIED | StatusCode::NO_CONTENT) {
            headers.insert(CONTENT_LENGTH, length.into());
        }
        headers.insert(REQUEST_ID, arrival.request_id.to_value());
        arrival.cross_origin.write(headers);
        arrival.write_hsts(headers);
        response
    }

    /// The status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The length of the body.
    pub(crate) fn body_length(&self) -> usize {
        self.body.len()
    }

    /// Encodes the response as HTTP/1.1, for the fast lane and for early refusals.
    /// `write_last_lines` writes what the lane adds to every response.
    pub(crate) fn encode(&self, arrival: &Arrival, out: &mut Vec<u8>, write_last_lines: impl FnOnce(&mut Vec<u8>)) {
        let reason = self.status.canonical_reason().unwrap_or_default();
        for piece in ["HTTP/1.1 ", self.status.as_str(), " ", reason, "\r\n"] {
            out.extend_from_slice(piece.as_bytes());
        }
        let mut own = HeaderMap::new();
        for (name, value) in &self.headers {
            if *name == VARY {
                own.append(name, value.clone());
            } else {
                write_line(out, name.as_str(), value.as_bytes());
            }
        }
        arrival.cross_origin.write(&mut own);
        arrival.write_hsts(&mut own);
        for (name, value) in &own {
            write_line(out, name.as_str(), value.as_bytes());
        }
        // In a 304 it would be the length of the response that the client has cached; a 204 must not have it.
        if !matches!(self.status, StatusCode::NOT_MODIFIED | StatusCode::NO_CONTENT) {
            write_line(out, CONTENT_LENGTH.as_str(), self.body.len().to_string().as_bytes());
        }
        write_line(out, REQUEST_ID.as_str(), arrival.request_id.as_bytes());
        write_last_lines(out);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.body);
    }
}
