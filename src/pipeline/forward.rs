//! Rewrites the head of a permitted request for the upstream: strips spoofable headers, adds identity, assertion and
//! tracing headers. Called by `gateway`.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, COOKIE, FORWARDED, HOST, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, HeaderName, HeaderValue};
use pingora_http::RequestHeader;

use super::assertion::Assertion;
use super::head::{HttpVersion, RequestHead};
use super::trace::traceparent;
use super::{Arrival, Caller, Gate, UpstreamPermit, forwarded};
use crate::config::ForwardedHeaders;
use crate::domain::header_line::write_line;
use crate::domain::hop_by_hop::is_hop_by_hop;
use crate::domain::identity::{self, is_look_alike};
use crate::domain::own_cookie;
use crate::domain::spoofable::SpoofableHeader;
use crate::error::{Error, Part};
use crate::metrics::Metrics;
use crate::rules::{CorsHandling, ForwardToken};

/// `X-Request-Id`.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// `traceparent`.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The head for the upstream: bytes for the fast lane and for bodyless GETs of Pingora's lane, else a header map.
trait HeaderSink {
    /// Sets one header.
    fn set(&mut self, name: HeaderName, value: &[u8]) -> Result<(), Error>;

    /// Sets one header from a ready value.
    fn set_value(&mut self, name: HeaderName, value: &HeaderValue);

    /// Sets the identity headers and the assertion.
    fn set_identity(&mut self, assertion: &Assertion);
}

impl HeaderSink for HeaderMap {
    fn set(&mut self, name: HeaderName, value: &[u8]) -> Result<(), Error> {
        let value = HeaderValue::from_bytes(value).map_err(|error| Error::unexpected(Part::Gateway, error))?;
        self.insert(name, value);
        Ok(())
    }

    fn set_value(&mut self, name: HeaderName, value: &HeaderValue) {
        self.insert(name, value.clone());
    }

    fn set_identity(&mut self, assertion: &Assertion) {
        match assertion {
            Assertion::Session(assertion) => insert_all(self, assertion.lines()),
            Assertion::Request(lines, assertion) => {
                insert_all(self, lines.lines());
                self.set_value(identity::ASSERTION, assertion);
            }
            Assertion::Off(lines) => insert_all(self, lines.lines()),
        }
    }
}

impl HeaderSink for Vec<u8> {
    fn set(&mut self, name: HeaderName, value: &[u8]) -> Result<(), Error> {
        write_line(self, name.as_str(), value);
        Ok(())
    }

    fn set_value(&mut self, name: HeaderName, value: &HeaderValue) {
        write_line(self, name.as_str(), value.as_bytes());
    }

    fn set_identity(&mut self, assertion: &Assertion) {
        match assertion {
            Assertion::Session(assertion) => self.extend_from_slice(assertion.block()),
            Assertion::Request(lines, assertion) => {
                self.extend_from_slice(lines.block());
                self.set_value(identity::ASSERTION, assertion);
            }
            Assertion::Off(lines) => self.extend_from_slice(lines.block()),
        }
    }
}

fn insert_all(headers: &mut HeaderMap, lines: impl Iterator<Item = (HeaderName, HeaderValue)>) {
    for (name, value) in lines {
        headers.insert(name, value);
    }
}

/// Writes the headers that the gateway adds to every forwarded request.
fn write_gateway_headers(
    out: &mut impl HeaderSink,
    gate: &Gate,
    permit: &UpstreamPermit,
    arrival: &Arrival,
    host: &[u8],
) -> Result<(), Error> {
    out.set(REQUEST_ID, arrival.request_id.as_bytes())?;
    out.set(TRACEPARENT, &traceparent(&arrival.request_id, permit.trace))?;
    let forwarded = gate.proxies.forwarded;
    if forwarded != ForwardedHeaders::XForwarded {
        let value = forwarded::value(arrival.client, arrival.peer, host, gate.scheme.as_bytes());
        out.set(FORWARDED, &value)?;
    }
    if forwarded != ForwardedHeaders::Rfc7239 {
        write_x_forwarded(out, gate, arrival, host)?;
    }
    if let Caller::SignedIn(_) = &permit.caller {
        if let Some(scope) = permit.scope {
            out.set_value(identity::SCOPE, &scope.to_value());
        }
        let assertion = permit.assertion.as_ref();
        out.set_identity(assertion.ok_or_else(|| Error::unexpected(Part::Gateway, "no assertion"))?);
    }
    Ok(())
}

fn write_x_forwarded(out: &mut impl HeaderSink, gate: &Gate, arrival: &Arrival, host: &[u8]) -> Result<(), Error> {
    let mut forwarded_for = address(arrival.client);
    if arrival.peer != arrival.client {
        forwarded_for.push_str(", ");
        forwarded_for.push_str(&address(arrival.peer));
    }
    out.set(FORWARDED_FOR, forwarded_for.as_bytes())?;
    out.set_value(FORWARDED_PROTO, &gate.scheme);
    out.set(FORWARDED_HOST, host)
}

/// Rewrites the client's head for the upstream, in a header map.
pub fn rewrite_request(
    gate: &Gate,
    permit: &UpstreamPermit,
    arrival: &Arrival,
    request: &mut RequestHeader,
) -> Result<(), Error> {
    // Inserting through Pingora's type maintains a second map of header spellings; the parts have only one.
    let empty = RequestHeader::from(http::Request::new(()).into_parts().0);
    let mut parts = http::request::Parts::from(std::mem::replace(request, empty));
    if let Some(target) = &permit.target {
        let broken = |error: http::uri::InvalidUri| Error::unexpected(Part::Gateway, error);
        parts.uri = target.parse().map_err(broken)?;
    }
    let headers = &mut parts.headers;
    strip(headers, permit, &gate.metrics);
    headers.reserve(16);
    let no_host = || Error::unexpected(Part::Gateway, "a request without a host");
    let host = headers.get(HOST).cloned().ok_or_else(no_host)?;
    write_gateway_headers(headers, gate, permit, arrival, host.as_bytes())?;
    if let Some(upstream_host) = &permit.rule.upstream.host {
        headers.insert(HOST, upstream_host.clone());
    }
    *request = RequestHeader::from(parts);
    Ok(())
}

/// Encodes the head of a request of the fast lane, or of a [bodyless GET](UpstreamPermit::is_bodyless_get), for the upstream as HTTP/1.1 bytes.
/// The names of its lines are in lower case. On HTTP/1.1 its only hop-by-hop headers are `Connection`, which is dropped, and
/// `Transfer-Encoding: chunked`, which the upstream needs.
pub fn write_head(
    gate: &Gate,
    permit: &UpstreamPermit,
    arrival: &Arrival,
    head: &RequestHead<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let target = permit.target.as_deref().map_or(head.target, str::as_bytes);
    for piece in [head.method.as_bytes(), b" ", target, b" HTTP/1.1\r\n"] {
        out.extend_from_slice(piece);
    }
    let mut host: Option<&[u8]> = None;
    let upstream_host = permit.rule.upstream.host.as_ref().map(HeaderValue::as_bytes);
    let mut cookies: Vec<&[u8]> = Vec::new();
    let rewrites_cookies = permit.unwanted.own_cookies || permit.unwanted.cookie_crumbs;
    let is_http2 = head.version == HttpVersion::Http2;
    head.lines.each(&mut |name, value| {
        if name == HOST.as_str().as_bytes() {
            host = Some(value);
            write_line(out, name, upstream_host.unwrap_or(value));
        } else if rewrites_cookies && name.eq_ignore_ascii_case(b"cookie") {
            cookies.push(value);
        } else if !(is_stripped(name, permit, &gate.metrics) || is_http2 && is_hop_by_hop(name)) {
            write_line(out, name, value);
        }
    });
    write_cookies(out, permit, &cookies);
    if let (None, Some(authority)) = (host, head.authority) {
        write_line(out, HOST.as_str(), upstream_host.unwrap_or(authority));
    }
    let host = host.or(head.authority).unwrap_or_default();
    write_gateway_headers(out, gate, permit, arrival, host)?;
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Writes the `Cookie` lines as one, without the gateway's own cookies.
fn write_cookies(out: &mut Vec<u8>, permit: &UpstreamPermit, cookies: &[&[u8]]) {
    if cookies.is_empty() {
        return;
    }
    let all = cookies.join(&b"; "[..]);
    match own_cookie::remove_from(&all) {
        _ if !permit.unwanted.own_cookies => write_line(out, COOKIE.as_str(), &all),
        Some(others) => write_line(out, COOKIE.as_str(), &others),
        None => {}
    }
}

/// Whether a header is not copied from the request: it is dropped or replaced by the gateway's own. `name` is in lower case.
fn is_stripped(name: &[u8], permit: &UpstreamPermit, metrics: &Metrics) -> bool {
    match name {
        b"authorization" => permit.rule.forward_token == ForwardToken::Never,
        b"sec-websocket-protocol" => permit.unwanted.subprotocol,
        // The gateway writes the first two itself; `Connection` is hop-by-hop.
        b"x-request-id" | b"traceparent" | b"connection" => true,
        // It belongs to a trace that is not continued.
        b"tracestate" => permit.trace.is_none(),
        name => permit.unwanted.spoofable && is_spoofable(name, metrics),
    }
}

/// Whether a client must not choose a header; counts it, because the caller removes it.
fn is_spoofable(name: &[u8], metrics: &Metrics) -> bool {
    let kind = SpoofableHeader::of(name);
    if let Some(label) = kind.and_then(SpoofableHeader::label) {
        metrics.count_removed_identity_header(label);
    }
    kind.is_some()
}

/// Strips spoofable headers. `permit.unwanted` lists the kinds that are present, so most requests are not searched.
fn strip(headers: &mut HeaderMap, permit: &UpstreamPermit, metrics: &Metrics) {
    if permit.rule.forward_token == ForwardToken::Never {
        headers.remove(AUTHORIZATION);
    }
    if permit.unwanted.subprotocol {
        headers.remove(SEC_WEBSOCKET_PROTOCOL);
    }
    if permit.trace.is_none() {
        // It belongs to a trace that is not continued.
        headers.remove(TRACESTATE);
    }
    if permit.unwanted.spoofable {
        for name in names(headers, |name| is_spoofable(name.as_bytes(), metrics)) {
            headers.remove(name);
        }
    }
    if permit.unwanted.cookie_crumbs {
        join_cookies(headers);
    }
    if permit.unwanted.own_cookies {
        remove_own_cookies(headers);
    }
}

/// Joins the `Cookie` lines of HTTP/2 into one (RFC 9113, section 8.2.3): HTTP/1.1 servers read only the first line, or
/// join them with commas, which are legal in cookie values.
fn join_cookies(headers: &mut HeaderMap) {
    let lines: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    // Valid header values joined with `; ` are a valid header value.
    if let Ok(whole) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(COOKIE, whole);
    }
}

/// Removes the gateway's own cookies: they prove a browser to the gateway, and are no upstream's business.
fn remove_own_cookies(headers: &mut HeaderMap) {
    let others = headers.get(COOKIE).and_then(|line| own_cookie::remove_from(line.as_bytes()));
    headers.remove(COOKIE);
    // A valid header value without some of its cookies is a valid header value.
    if let Some(others) = others.and_then(|others| HeaderValue::from_bytes(&others).ok()) {
        headers.insert(COOKIE, others);
    }
}

fn names(headers: &HeaderMap, unwanted: impl Fn(&str) -> bool) -> Vec<HeaderName> {
    headers.keys().filter(|name| unwanted(name.as_str())).cloned().collect()
}

/// The headers of an upstream's response that the client must not see: identity headers, and CORS headers unless the rule
/// leaves them to the upstream. The fast lane drops the same ones from bytes (`fast_lane::response`).
pub fn removed_from_response(headers: &HeaderMap, cors: CorsHandling) -> Vec<HeaderName> {
    let is_foreign_cors = |name: &str| cors == CorsHandling::Gateway && name.starts_with("access-control-");
    names(headers, |name| is_look_alike(name.as_bytes()) || is_foreign_cors(name))
}

/// Formats an address. Hand-written for IPv4, because `fmt` takes as long for one address as three headers do.
fn address(address: IpAddr) -> String {
    let IpAddr::V4(address) = address else { return address.to_string() };
    let mut text = String::with_capacity("255.255.255.255".len());
    for (place, octet) in address.octets().into_iter().enumerate() {
        if place > 0 {
            text.push('.');
        }
        if octet >= 100 {
            text.push(char::from(b'0' + octet / 100));
        }
        if octet >= 10 {
            text.push(char::from(b'0' + octet / 10 % 10));
        }
        text.push(char::from(b'0' + octet % 10));
    }
    text
}

#[cfg(test)]
mod tests;
