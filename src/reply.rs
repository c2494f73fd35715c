//! Every answer's bytes: the envelope, refusals, redirects and pages.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, LOCATION, REFERRER_POLICY,
    RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use pingora_http::ResponseHeader;
use pingora_proxy::Session as Exchange;
use serde::Serialize;

use crate::domain::language::Language;
use crate::domain::rate::{Exceeded, retry_after_seconds};
use crate::error::{Code, Error};
use crate::pipeline::Arrival;
use crate::pipeline::forward::REQUEST_ID;

mod tag;

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// How long what may be kept is believed without asking.
const KEPT: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// Nothing from elsewhere, nothing inline; the QR code is a data picture.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);

/// The envelope of every JSON answer.
#[derive(Serialize)]
struct Envelope<'a, T> {
    code: u16,
    message: &'a str,
    data: Option<T>,
    request_id: &'a str,
}

/// A cookie that scripts cannot read.
#[derive(Debug, Clone)]
pub struct Cookie {
    /// Its name.
    pub name: String,
    /// Its value; letters that need no quoting.
    pub value: String,
    /// Where it is sent back to.
    pub path: &'static str,
    /// Seconds until the browser forgets it; 0 removes it.
    pub max_age: u64,
}

/// `RateLimit` and `RateLimit-Policy`, as the IETF's draft on rate-limit fields has them.
fn rate_fields(exceeded: &Exceeded, retry_after: Duration) -> Vec<(HeaderName, HeaderValue)> {
    let (by, window) = (exceeded.by, exceeded.window);
    let policy = format!("\"{by}\";q={};w={}", window.limit, retry_after_seconds(window.per));
    let limit = format!("\"{by}\";r=0;t={}", retry_after_seconds(retry_after));
    let fields = [(HeaderName::from_static("ratelimit-policy"), policy), (HeaderName::from_static("ratelimit"), limit)];
    fields.into_iter().filter_map(|(name, text)| Some((name, HeaderValue::from_str(&text).ok()?))).collect()
}

/// An answer of ours.
#[derive(Debug)]
pub struct Reply {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

impl Reply {
    fn new(status: StatusCode, content_type: HeaderValue, body: impl Into<Bytes>) -> Self {
        let headers = vec![
            (CONTENT_TYPE, content_type),
            (CACHE_CONTROL, HeaderValue::from_static("no-store")),
            (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        ];
        Self { status, headers, body: body.into() }
    }

    /// Success: the data in its envelope.
    pub fn data(arrival: &Arrival, data: &impl Serialize) -> Self {
        Self::enveloped(arrival, StatusCode::OK, 0, "ok", Some(data))
    }

    /// A failure in its envelope, with the headers that belong to it.
    pub fn refusal(arrival: &Arrival, error: &Error) -> Self {
        Self::refusal_with(arrival, error, None::<&()>)
    }

    /// A failure that still has something to tell.
    pub fn refusal_with(arrival: &Arrival, error: &Error, data: Option<&impl Serialize>) -> Self {
        let code = error.code();
        let message = error.message(arrival.language);
        let mut reply = Self::enveloped(arrival, code.status(), code.number(), &message, data).advice(error);
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
        // Plain structs with text keys: there is nothing in them that JSON cannot say.
        Self::new(status, JSON, serde_json::to_vec(&envelope).unwrap_or_default())
    }

    /// JSON of a form that somebody else has fixed, which may be kept for a while.
    pub fn document(document: &impl Serialize) -> Self {
        Self::new(StatusCode::OK, JSON, serde_json::to_vec(document).unwrap_or_default()).kept()
    }

    /// Lets everybody keep it for a while and then ask by its tag whether it is still the same. For what is the same
    /// for all, and does not lie under `/api/auth`.
    fn kept(mut self) -> Self {
        self.set(CACHE_CONTROL, KEPT);
        self.headers.extend(tag::of(&self.body).map(|tag| (ETAG, tag)));
        self
    }

    /// What a client gets that already has an answer with this tag: 304, and what it needs to keep it longer.
    fn unless_known(mut self, asked: &HeaderMap) -> Self {
        let known = self.headers.iter().any(|(name, value)| *name == ETAG && tag::is_named(value, asked));
        if known {
            self.status = StatusCode::NOT_MODIFIED;
            self.headers.retain(|(name, _)| *name != CONTENT_TYPE);
            self.body = Bytes::new();
        }
        self
    }

    /// A page for people.
    pub fn page(status: StatusCode, language: Language, html: String) -> Self {
        let mut reply = Self::new(status, HTML, html);
        reply.headers.push((CONTENT_SECURITY_POLICY, PAGE_POLICY));
        reply.headers.push((REFERRER_POLICY, HeaderValue::from_static("no-referrer")));
        reply.headers.push((http::header::CONTENT_LANGUAGE, HeaderValue::from_static(language.tag())));
        reply
    }

    /// Says what would help: other credentials, or trying again later.
    pub fn advice(mut self, error: &Error) -> Self {
        self.headers.extend(error.challenge().map(|challenge| (WWW_AUTHENTICATE, challenge)));
        let wait = error.retry_after().map(|wait| (RETRY_AFTER, HeaderValue::from(retry_after_seconds(wait))));
        self.headers.extend(wait);
        self
    }

    /// A file that belongs to a page. It is not kept, as nothing under `/api/auth` is: its address does not say of
    /// which version it is, and a page must never run with the script of another one.
    pub fn asset(content_type: &'static str, text: &'static str) -> Self {
        Self::new(StatusCode::OK, HeaderValue::from_static(content_type), text)
    }

    /// JSON that is text already.
    pub fn json(text: String) -> Self {
        Self::new(StatusCode::OK, JSON, text)
    }

    /// A redirect. `to` is one of ours or one that was checked; what cannot be a header goes nowhere.
    pub fn redirect(to: &str) -> Self {
        let mut reply = Self::new(StatusCode::FOUND, HTML, "");
        match HeaderValue::from_str(to) {
            Ok(location) => reply.headers.push((LOCATION, location)),
            Err(_) => reply.status = StatusCode::BAD_REQUEST,
        }
        reply.headers.push((REFERRER_POLICY, HeaderValue::from_static("no-referrer")));
        reply
    }

    /// Adds a cookie; `secure` keeps it off plain HTTP.
    pub fn cookie(mut self, cookie: &Cookie, secure: bool) -> Self {
        let Cookie { name, value, path, max_age } = cookie;
        let secure = if secure { "; Secure" } else { "" };
        let text = format!("{name}={value}; Path={path}; Max-Age={max_age}; HttpOnly; SameSite=Lax{secure}");
        self.headers.extend(HeaderValue::from_str(&text).ok().map(|value| (SET_COOKIE, value)));
        self
    }

    fn set(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.retain(|(present, _)| *present != name);
        self.headers.push((name, value));
    }

    /// The status of this answer.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Sends it.
    pub async fn write(self, exchange: &mut Exchange, arrival: &Arrival) -> pingora_core::Result<()> {
        let head_only = exchange.req_header().method == http::Method::HEAD;
        let reply = self.unless_known(&exchange.req_header().headers);
        let (mut parts, ()) = http::Response::new(()).into_parts();
        parts.status = reply.status;
        parts.headers.reserve(reply.headers.len() + 4);
        for (name, value) in reply.headers {
            parts.headers.append(name, value);
        }
        // In a 304 it would be the length of the answer that the client already has.
        if reply.status != StatusCode::NOT_MODIFIED {
            parts.headers.insert(CONTENT_LENGTH, reply.body.len().into());
        }
        parts.headers.insert(REQUEST_ID, arrival.request_id.to_value());
        let header = ResponseHeader::from(parts);
        let bodiless = head_only || reply.body.is_empty();
        exchange.write_response_header(Box::new(header), bodiless).await?;
        if !bodiless {
            exchange.write_response_body(Some(reply.body), true).await?;
        }
        Ok(())
    }

    /// The same as bytes of HTTP/1.1, for a connection that never got as far as a request.
    pub fn to_bytes(&self, arrival: &Arrival) -> Vec<u8> {
        let mut bytes = format!("HTTP/1.1 {}\r\n", self.status).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_str().as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        let rest = format!(
            "content-length: {}\r\nx-request-id: {}\r\nconnection: close\r\n\r\n",
            self.body.len(),
            arrival.request_id.as_str()
        );
        bytes.extend_from_slice(rest.as_bytes());
        bytes.extend_from_slice(&self.body);
        bytes
    }
}
