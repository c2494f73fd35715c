//! Last phase before an upstream: take out what only we may say, put in what we say.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, COOKIE, HOST, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, HeaderName, HeaderValue};
use pingora_http::RequestHeader;

use super::arrive::RequestId;
use super::assertion::Assertion;
use super::head::{RequestHead, is_forwarding};
use super::{Arrival, Caller, Gate, UpstreamPermit};
use crate::domain::identity::{self, IdentityLines, is_look_alike};
use crate::error::{Error, Part};
use crate::metrics::Metrics;
use crate::rules::ForwardToken;

/// The header that carries a request's id.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A trace that somebody else began: the 32 digits of its id, and its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId {
    id: [u8; 32],
    flags: [u8; 2],
}

impl TraceId {
    /// Out of a `traceparent` of W3C's version 00; anything else begins a new trace.
    pub fn given(value: &[u8]) -> Option<Self> {
        let lower_hex = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let parts: Vec<&[u8]> = value.split(|byte| *byte == b'-').collect();
        let [b"00", id, parent, flags] = parts[..] else { return None };
        let sound = lower_hex(id) && lower_hex(parent) && lower_hex(flags);
        let some = id.iter().any(|byte| *byte != b'0') && parent.iter().any(|byte| *byte != b'0');
        if !sound || !some || parent.len() != 16 {
            return None;
        }
        Some(Self { id: id.try_into().ok()?, flags: flags.try_into().ok()? })
    }
}

/// A head on its way to an upstream, in the form that its lane sends.
trait HeaderSink {
    /// Says one line.
    fn set(&mut self, name: HeaderName, value: &[u8]) -> Result<(), Error>;

    /// Says one line whose value is ready.
    fn set_value(&mut self, name: HeaderName, value: &HeaderValue);

    /// Says who asks, and the signed form of it.
    fn identify(&mut self, lines: &IdentityLines, signed: &Assertion);
}

/// The lane that forwards a header map.
impl HeaderSink for HeaderMap {
    fn set(&mut self, name: HeaderName, value: &[u8]) -> Result<(), Error> {
        let value = HeaderValue::from_bytes(value).map_err(|error| Error::unexpected(Part::Gateway, error))?;
        self.insert(name, value);
        Ok(())
    }

    fn set_value(&mut self, name: HeaderName, value: &HeaderValue) {
        self.insert(name, value.clone());
    }

    fn identify(&mut self, lines: &IdentityLines, signed: &Assertion) {
        for (name, value) in lines.lines() {
            self.insert(name, value.clone());
        }
        match signed {
            Assertion::Session(assertion) => self.set_value(identity::ASSERTION, &assertion.value),
            Assertion::Request(assertion) => self.set_value(identity::ASSERTION, assertion),
            Assertion::Off => {}
        }
    }
}

/// The lane that sends bytes.
impl HeaderSink for Vec<u8> {
    fn set(&mut self, name: HeaderName, value: &[u8]) -> Result<(), Error> {
        write_line(self, name.as_str(), value);
        Ok(())
    }

    fn set_value(&mut self, name: HeaderName, value: &HeaderValue) {
        write_line(self, name.as_str(), value.as_bytes());
    }

    fn identify(&mut self, lines: &IdentityLines, signed: &Assertion) {
        match signed {
            Assertion::Session(assertion) => self.extend_from_slice(&assertion.block),
            Assertion::Request(assertion) => {
                self.extend_from_slice(lines.block());
                self.set_value(identity::ASSERTION, assertion);
            }
            Assertion::Off => self.extend_from_slice(lines.block()),
        }
    }
}

fn write_line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for piece in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(piece);
    }
}

/// Everything that we say to an upstream about a request, whichever lane it takes.
fn write_gateway_headers(
    out: &mut impl HeaderSink,
    gate: &Gate,
    permit: &UpstreamPermit,
    arrival: &Arrival,
    host: &[u8],
) -> Result<(), Error> {
    out.set(REQUEST_ID, arrival.request_id.as_bytes())?;
    out.set(TRACEPARENT, &traceparent(&arrival.request_id, permit.trace))?;
    let mut forwarded_for = address(arrival.client);
    if arrival.peer != arrival.client {
        forwarded_for.push_str(", ");
        forwarded_for.push_str(&address(arrival.peer));
    }
    out.set(FORWARDED_FOR, forwarded_for.as_bytes())?;
    out.set_value(FORWARDED_PROTO, &gate.scheme);
    out.set(FORWARDED_HOST, host)?;
    if let Caller::SignedIn(known) = &permit.caller {
        if let Some(scope) = permit.scope {
            out.set_value(identity::SCOPE, &scope.to_value());
        }
        let signed = permit.assertion.as_ref();
        out.identify(&known.lines, signed.ok_or_else(|| Error::unexpected(Part::Gateway, "no assertion"))?);
    }
    Ok(())
}

/// Turns a client's head into the one that the upstream gets.
pub fn rewrite_request(
    gate: &Gate,
    permit: &UpstreamPermit,
    arrival: &Arrival,
    request: &mut RequestHeader,
) -> Result<(), Error> {
    // Only the parts let go of their map: what is inserted through the engine's own type is looked at twice.
    let empty = RequestHeader::from(http::Request::new(()).into_parts().0);
    let mut parts = http::request::Parts::from(std::mem::replace(request, empty));
    if let Some(target) = &permit.target {
        let broken = |error: http::uri::InvalidUri| Error::unexpected(Part::Gateway, error);
        parts.uri = target.parse().map_err(broken)?;
    }
    let headers = &mut parts.headers;
    clean(headers, permit, &gate.metrics);
    headers.reserve(16);
    // HTTP/1.0 may leave the host out; upstreams are asked in HTTP/1.1, which may not.
    let host = headers.entry(HOST).or_insert_with(|| gate.host.clone()).clone();
    write_gateway_headers(headers, gate, permit, arrival, host.as_bytes())?;
    *request = RequestHeader::from(parts);
    Ok(())
}

/// The head of a [plain question](UpstreamPermit::is_plain) for the upstream, as the bytes of an HTTP/1.1 head.
pub fn write_head(
    gate: &Gate,
    permit: &UpstreamPermit,
    arrival: &Arrival,
    head: &RequestHead<'_>,
) -> Result<Vec<u8>, Error> {
    let mut out = Vec::with_capacity(2048);
    let target = permit.target.as_deref().map_or(head.target, str::as_bytes);
    for piece in [head.method.as_bytes(), b" ", target, b" HTTP/1.1\r\n"] {
        out.extend_from_slice(piece);
    }
    let mut host = gate.host.as_bytes();
    head.lines.each(&mut |name, value| {
        if name == HOST.as_str() {
            host = value;
        }
        if !is_taken_out(name, permit, &gate.metrics) {
            write_line(&mut out, name, value);
        }
    });
    write_gateway_headers(&mut out, gate, permit, arrival, host)?;
    out.extend_from_slice(b"\r\n");
    Ok(out)
}

/// Whether a line of a plain question goes no further, or is said anew by us.
fn is_taken_out(name: &str, permit: &UpstreamPermit, metrics: &Metrics) -> bool {
    match name {
        "authorization" => permit.rule.forward_token == ForwardToken::Never,
        "sec-websocket-protocol" => permit.unwanted.subprotocol,
        // Ours to say, and of this connection only.
        "x-request-id" | "traceparent" | "connection" => true,
        name if permit.unwanted.look_alikes && is_look_alike(name.as_bytes()) => {
            count_look_alike(name, metrics);
            true
        }
        name => permit.unwanted.forwarding && is_forwarding(name),
    }
}

fn count_look_alike(name: &str, metrics: &Metrics) {
    metrics.identity_header_removed(if name.starts_with(identity::PREFIX) { "exact" } else { "folded" });
}

/// Removes what only we may say. Most requests have nothing of the kind; the first permit over the head
/// has told.
fn clean(headers: &mut HeaderMap, permit: &UpstreamPermit, metrics: &Metrics) {
    if permit.rule.forward_token == ForwardToken::Never {
        headers.remove(AUTHORIZATION);
    }
    if permit.unwanted.subprotocol {
        headers.remove(SEC_WEBSOCKET_PROTOCOL);
    }
    if permit.unwanted.look_alikes {
        for name in names(headers, |name| is_look_alike(name.as_bytes())) {
            count_look_alike(name.as_str(), metrics);
            headers.remove(name);
        }
    }
    if permit.unwanted.forwarding {
        for name in names(headers, is_forwarding) {
            headers.remove(name);
        }
    }
    if permit.unwanted.cookie_crumbs {
        join_cookies(headers);
    }
}

/// Puts a cookie that came in several lines into one (RFC 9113, section 8.2.3): HTTP/1.1 servers read only
/// the first line, or join them with commas, which are part of values.
fn join_cookies(headers: &mut HeaderMap) {
    let lines: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    // Values of headers with blanks between them are again one.
    if let Ok(whole) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(COOKIE, whole);
    }
}

fn names(headers: &HeaderMap, unwanted: impl Fn(&str) -> bool) -> Vec<HeaderName> {
    headers.keys().filter(|name| unwanted(name.as_str())).cloned().collect()
}

/// Removes from an upstream's answer what only we may say to upstreams.
pub fn clean_answer(headers: &HeaderMap) -> Vec<HeaderName> {
    names(headers, |name| is_look_alike(name.as_bytes()))
}

/// The request's place in its trace. The ids are our request id: 16 bytes that no other request has.
fn traceparent(id: &RequestId, trace: Option<TraceId>) -> [u8; 55] {
    let is_trace = |id: &[u8]| id.len() == 32 && id.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    // An id that a trusted peer gave may be of any form; a trace needs 32 digits.
    let own = if is_trace(id.as_bytes()) { *id } else { RequestId::fresh() };
    let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
    match trace {
        Some(TraceId { id, flags }) => {
            text[3..35].copy_from_slice(&id);
            text[53..].copy_from_slice(&flags);
        }
        // All 32 of them: anything else was replaced above.
        None => text[3..35].copy_from_slice(own.as_bytes()),
    }
    text[36..52].copy_from_slice(&own.as_bytes()[16..]);
    text
}

/// An address as text. The formatter takes as long for one as three headers do, and most are of version 4.
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
