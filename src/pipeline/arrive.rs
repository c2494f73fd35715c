//! Phase 1: identifies client, request id and language, and rejects heads that are ambiguous (request smuggling) or
//! too large.

use std::borrow::Cow;
use std::net::IpAddr;

use super::Arrival;
use super::client_address::TrustedProxies;
use super::cors::CorsPolicy;
use super::head::{Fields, HttpVersion, RequestHead};
use super::request_id::RequestId;
use super::upgrade::{self, Handshake};
use crate::config::LimitsConfig;
use crate::domain::host::{AllowedHosts, RequestHost};
use crate::domain::language::Language;
use crate::domain::path::{self, PathFault};
use crate::endpoints;
use crate::error::{BadRequest, Error};

/// Describes a request. Never fails: a refusal needs a request id and a language, too. Until [`client`] has found another
/// one, the client's address is the peer's.
pub fn describe(
    proxies: &TrustedProxies,
    default_language: Language,
    cors: &CorsPolicy,
    head: &RequestHead<'_>,
    fields: &Fields<'_>,
) -> Arrival {
    let peer = head.peer.to_canonical();
    let request_id = fields.request_id.filter(|_| proxies.contains(peer)).and_then(RequestId::parse);
    let accept_language = fields.accept_language.and_then(|value| std::str::from_utf8(value).ok());
    Arrival {
        request_id: request_id.unwrap_or_else(RequestId::fresh),
        client: peer,
        peer,
        language: Language::negotiate(accept_language, default_language),
        cross_origin: cors.cross_origin(fields.origin),
        hsts: None,
    }
}

/// Returns the client's address: the peer's, or the one that a trusted proxy forwarded.
pub fn client(proxies: &TrustedProxies, arrival: &Arrival, fields: &Fields<'_>) -> Result<IpAddr, Error> {
    proxies.client_of(arrival.peer, fields)
}

/// A request whose head passed [`check`].
pub struct CheckedRequest<'a> {
    pub(super) head: &'a RequestHead<'a>,
    pub(super) fields: &'a Fields<'a>,
    /// The host that the request names; only `/api/ready` answers without one.
    pub(super) host: Option<RequestHost<'a>>,
    /// The path in canonical form.
    pub(super) path: Cow<'a, str>,
    pub(super) query: Option<&'a str>,
    pub(super) target_form: TargetForm,
    pub(super) handshake: Option<Handshake>,
}

/// The target of an OPTIONS request about the server as a whole (RFC 9112, section 3.2.4). No path of a rule is equal to it.
pub(super) const WHOLE_SERVER: &str = "*";

/// Whether the upstream gets the target as the client sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetForm {
    /// It does.
    AsSent,
    /// The target was absolute, or its path not canonical.
    Rewritten,
}

/// Rejects ambiguous heads, heads that are too large, and hosts that are not ours.
pub fn check<'a>(
    limits: &LimitsConfig,
    hosts: &AllowedHosts,
    head: &'a RequestHead<'a>,
    fields: &'a Fields<'a>,
) -> Result<CheckedRequest<'a>, Error> {
    if head.target.len() > limits.target_bytes {
        return Err(Error::TargetTooLong);
    }
    let bytes = head.method.len() + head.target.len() + fields.bytes;
    if fields.count > limits.headers || bytes > limits.head_bytes {
        return Err(Error::HeadTooLarge);
    }
    if let Some(name) = fields.repeated {
        return Err(BadRequest::Repeated(name).into());
    }
    check_lines(head)?;
    check_framing(head, fields)?;
    let host = read_host(hosts, head, fields)?;
    let SplitTarget { path, query, form } = match head.target {
        b"*" if head.method == "OPTIONS" => {
            SplitTarget { path: WHOLE_SERVER.into(), query: None, form: TargetForm::AsSent }
        }
        target => split_target(target, host.as_ref())?,
    };
    if path.len() > path::LONGEST {
        return Err(Error::TargetTooLong);
    }
    if !hosts.allows(host.as_ref()) && !endpoints::answers_any_host(&path) {
        return Err(Error::UnknownHost);
    }
    let handshake = upgrade::handshake(head, fields)?;
    Ok(CheckedRequest { head, fields, host, path, query, target_form: form, handshake })
}

/// Rejects bare line feeds, which end a line for some servers only, and request lines with extra spaces, which
/// Pingora accepts: the raw first line must have the target exactly as Pingora parsed it.
fn check_lines(head: &RequestHead<'_>) -> Result<(), Error> {
    let Some(raw) = head.raw else { return Ok(()) };
    let first = raw.get(..head.method.len() + 1 + head.target.len() + 1).unwrap_or_default();
    let rest = first.strip_prefix(head.method.as_bytes()).and_then(|rest| rest.strip_prefix(b" "));
    let target = rest.and_then(|rest| rest.strip_suffix(b" "));
    if target.is_none_or(|target| target != head.target) {
        return Err(BadRequest::Head.into());
    }
    for end in memchr::memchr_iter(b'\n', raw) {
        if end == 0 || raw[end - 1] != b'\r' {
            return Err(BadRequest::Head.into());
        }
    }
    Ok(())
}

/// Requires exactly one valid statement of the body's length.
fn check_framing(head: &RequestHead<'_>, fields: &Fields<'_>) -> Result<(), Error> {
    if let Some(length) = fields.content_length {
        let digits = !length.is_empty() && length.len() <= 18 && length.iter().all(u8::is_ascii_digit);
        if !digits || fields.transfer_encoding.is_some() {
            return Err(BadRequest::Framing.into());
        }
    }
    if let Some(encoding) = fields.transfer_encoding {
        // Pingora drops Content-Length when both are present, so the raw bytes are searched.
        let both = head.raw.is_some_and(has_content_length);
        if both || head.version != HttpVersion::Http11 || !encoding.eq_ignore_ascii_case(b"chunked") {
            return Err(BadRequest::Framing.into());
        }
    }
    match fields.expect {
        Some(expect) if !expect.eq_ignore_ascii_case(b"100-continue") => Err(BadRequest::Expectation.into()),
        _ => Ok(()),
    }
}

fn has_content_length(raw: &[u8]) -> bool {
    const NAME: &[u8] = b"content-length";
    raw.split(|byte| *byte == b'\n').skip(1).any(|line| {
        line.len() > NAME.len()
            && line[..NAME.len()].eq_ignore_ascii_case(NAME)
            && line[NAME.len()..].trim_ascii_start().starts_with(b":")
    })
}

/// Reads `Host`, or the `:authority` of HTTP/2. Only HTTP/1.0 may omit it.
fn read_host<'a>(
    hosts: &AllowedHosts,
    head: &RequestHead<'a>,
    fields: &Fields<'a>,
) -> Result<Option<RequestHost<'a>>, Error> {
    match fields.host.or(head.authority) {
        Some(host) => match hosts.parse(host) {
            Some(host) => Ok(Some(host)),
            None => Err(BadRequest::Header("Host").into()),
        },
        None if head.version == HttpVersion::Http10 => Ok(None),
        None => Err(BadRequest::Header("Host").into()),
    }
}

#[derive(Debug)]
struct SplitTarget<'a> {
    path: Cow<'a, str>,
    query: Option<&'a str>,
    form: TargetForm,
}

fn split_target<'a>(target: &'a [u8], host: Option<&RequestHost<'_>>) -> Result<SplitTarget<'a>, Error> {
    let origin_form = strip_authority(target, host)?;
    let (path, query) = match memchr::memchr(b'?', origin_form) {
        Some(mark) => (&origin_form[..mark], Some(&origin_form[mark + 1..])),
        None => (origin_form, None),
    };
    let path = path::canonical(path)?;
    let query = match query {
        Some(query) if path::is_valid_query(query) => Some(std::str::from_utf8(query).map_err(|_| PathFault::Query)?),
        Some(_) => return Err(PathFault::Query.into()),
        None => None,
    };
    let as_sent = origin_form.len() == target.len() && matches!(path, Cow::Borrowed(_));
    Ok(SplitTarget { path, query, form: if as_sent { TargetForm::AsSent } else { TargetForm::Rewritten } })
}

/// Returns the origin form of a target. An absolute target must have the same authority as `Host`.
fn strip_authority<'a>(target: &'a [u8], host: Option<&RequestHost<'_>>) -> Result<&'a [u8], Error> {
    if target.first() == Some(&b'/') {
        return Ok(target);
    }
    let lower: Vec<u8> = target.iter().take(8).map(u8::to_ascii_lowercase).collect();
    let start = [&b"http://"[..], b"https://"].into_iter().find(|scheme| lower.starts_with(scheme)).map(<[u8]>::len);
    let rest = start.map(|start| &target[start..]).ok_or(PathFault::NotAPath)?;
    let slash = memchr::memchr(b'/', rest).ok_or(PathFault::NotAPath)?;
    let (authority, origin_form) = rest.split_at(slash);
    if !host.is_some_and(|host| host.as_bytes().eq_ignore_ascii_case(authority)) {
        return Err(BadRequest::Header("Host").into());
    }
    Ok(origin_form)
}

#[cfg(test)]
mod tests;
