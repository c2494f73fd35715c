//! First phase: who asks, under which id, and whether the head is one that can only be read in one way.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;

use super::head::{Fields, HttpVersion, RequestHead};
use super::upgrade::{self, Handshake};
use super::{Arrival, Gate};
use crate::domain::language::Language;
use crate::domain::path::{self, PathFault};
use crate::domain::secret::random_bytes;
use crate::error::{BadRequest, Error};

/// The id of a request, at most 64 letters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestId {
    length: u8,
    text: [u8; Self::LONGEST],
}

impl RequestId {
    const LONGEST: usize = 64;

    /// A new one: a random name of this process, then a count.
    pub fn fresh() -> Self {
        static PROCESS: LazyLock<u64> = LazyLock::new(|| u64::from_le_bytes(random_bytes()));
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut id = Self { length: 32, text: [0; Self::LONGEST] };
        for (half, number) in [*PROCESS, count].into_iter().enumerate() {
            for digit in 0..16 {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                let nibble = usize::try_from(number >> (60 - 4 * digit) & 15).unwrap_or(0);
                id.text[half * 16 + digit] = HEX[nibble];
            }
        }
        id
    }

    /// One that a trusted peer sent, if it is well-formed.
    fn given(text: &[u8]) -> Option<Self> {
        let fits = (8..=Self::LONGEST).contains(&text.len())
            && text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
        if !fits {
            return None;
        }
        let mut id = Self { length: u8::try_from(text.len()).ok()?, text: [0; Self::LONGEST] };
        id.text[..text.len()].copy_from_slice(text);
        Some(id)
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        // Only ASCII was ever put in.
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// As a header's value.
    pub fn to_value(&self) -> HeaderValue {
        // Only letters, digits and `-_.` were ever put in, and they may all stand there.
        HeaderValue::from_bytes(self.as_bytes()).unwrap_or(HeaderValue::from_static("-"))
    }

    /// As bytes, all of them ASCII.
    pub fn as_bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.length)]
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Describes a request. Never fails: a refusal needs its id and its language, too.
pub fn describe(gate: &Gate, head: &RequestHead<'_>, fields: &Fields<'_>) -> Arrival {
    let peer = head.peer.to_canonical();
    let trusted = gate.trusted_proxies.iter().any(|net| net.contains(&peer));
    let client = fields.forwarded_for.filter(|_| trusted).and_then(first_address).unwrap_or(peer);
    let request_id = fields.request_id.filter(|_| trusted).and_then(RequestId::given);
    let accept_language = fields.accept_language.and_then(|value| std::str::from_utf8(value).ok());
    Arrival {
        request_id: request_id.unwrap_or_else(RequestId::fresh),
        client,
        peer,
        language: Language::negotiate(accept_language, gate.language),
    }
}

/// The first address of an `X-Forwarded-For`, with or without a port.
fn first_address(value: &[u8]) -> Option<IpAddr> {
    let first = std::str::from_utf8(value).ok()?.split(',').next()?.trim();
    let address = first.parse().ok().or_else(|| first.parse::<std::net::SocketAddr>().ok().map(|socket| socket.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

/// A head that has been found sound.
pub struct Request<'a> {
    /// The head.
    pub head: &'a RequestHead<'a>,
    /// Its fields.
    pub fields: &'a Fields<'a>,
    /// The path in its one form.
    pub path: Cow<'a, str>,
    /// The query, if there is one.
    pub query: Option<&'a str>,
    /// Whether the target can be forwarded as it came.
    pub target_form: TargetForm,
    /// The WebSocket handshake, if it is one.
    pub handshake: Option<Handshake>,
}

/// Whether the target can be forwarded as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetForm {
    /// Yes.
    AsSent,
    /// No: it was absolute, or its path had another spelling.
    Rewritten,
}

/// Refuses whatever could be read in two ways, or is too large.
pub fn check<'a>(gate: &Gate, head: &'a RequestHead<'a>, fields: &'a Fields<'a>) -> Result<Request<'a>, Error> {
    if head.target.len() > gate.limits.target_bytes {
        return Err(Error::TargetTooLong);
    }
    if fields.count > gate.limits.headers || fields.bytes + head.target.len() > gate.limits.head_bytes {
        return Err(Error::HeadTooLarge);
    }
    if let Some(name) = fields.repeated {
        return Err(BadRequest::Repeated(name).into());
    }
    check_lines(head)?;
    check_framing(head, fields)?;
    let host = check_host(head, fields)?;
    let (path, query, target_form) = split_target(head.target, host)?;
    if path.len() > path::LONGEST {
        return Err(Error::TargetTooLong);
    }
    let handshake = upgrade::handshake(head, fields)?;
    Ok(Request { head, fields, path, query, target_form, handshake })
}

/// Bare line feeds end lines for some servers and not for others, and the engine mends request lines that
/// have a blank too many: the target must stand in the first line as it was read.
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

/// One way to say how long the body is.
fn check_framing(head: &RequestHead<'_>, fields: &Fields<'_>) -> Result<(), Error> {
    if let Some(length) = fields.content_length {
        let digits = !length.is_empty() && length.len() <= 18 && length.iter().all(u8::is_ascii_digit);
        if !digits || fields.transfer_encoding.is_some() {
            return Err(BadRequest::Framing.into());
        }
    }
    if let Some(encoding) = fields.transfer_encoding {
        // The engine drops Content-Length when both are there, so the bytes themselves are asked.
        let both = head.raw.is_some_and(names_content_length);
        if both || head.version != HttpVersion::Http11 || !encoding.eq_ignore_ascii_case(b"chunked") {
            return Err(BadRequest::Framing.into());
        }
    }
    match fields.expect {
        Some(expect) if !expect.eq_ignore_ascii_case(b"100-continue") => Err(BadRequest::Header("Expect").into()),
        _ => Ok(()),
    }
}

fn names_content_length(raw: &[u8]) -> bool {
    const NAME: &[u8] = b"content-length";
    raw.split(|byte| *byte == b'\n').skip(1).any(|line| {
        line.len() > NAME.len()
            && line[..NAME.len()].eq_ignore_ascii_case(NAME)
            && line[NAME.len()..].trim_ascii_start().starts_with(b":")
    })
}

/// The one host that is meant. HTTP/1.0 may leave it out.
fn check_host<'a>(head: &RequestHead<'a>, fields: &Fields<'a>) -> Result<Option<&'a [u8]>, Error> {
    match fields.host {
        Some(host) if is_host(host) => Ok(Some(host)),
        Some(_) => Err(BadRequest::Header("Host").into()),
        // HTTP/2 says it in `:authority`, which the engine has checked.
        None if head.version == HttpVersion::Http11 => Err(BadRequest::Header("Host").into()),
        None => Ok(None),
    }
}

/// A name or an address, and perhaps a port.
fn is_host(host: &[u8]) -> bool {
    let (name, port) = match host.strip_prefix(b"[") {
        Some(rest) => match memchr::memchr(b']', rest) {
            Some(end) => (&rest[..end], &rest[end + 1..]),
            None => return false,
        },
        None => host.split_at(memchr::memchr(b':', host).unwrap_or(host.len())),
    };
    let in_brackets = host.starts_with(b"[");
    let allowed = |byte: &u8| match byte {
        b':' => in_brackets,
        byte => byte.is_ascii_alphanumeric() || b".-_".contains(byte),
    };
    let port_fits = match port.strip_prefix(b":") {
        Some(digits) => {
            let number = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'));
            number.and_then(|digits| digits.parse::<u16>().ok()).is_some_and(|port| port > 0)
        }
        None => port.is_empty(),
    };
    !name.is_empty() && name.iter().all(allowed) && port_fits
}

type Target<'a> = (Cow<'a, str>, Option<&'a str>, TargetForm);

fn split_target<'a>(target: &'a [u8], host: Option<&[u8]>) -> Result<Target<'a>, Error> {
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
    Ok((path, query, if as_sent { TargetForm::AsSent } else { TargetForm::Rewritten }))
}

/// The origin form of a target. An absolute one must name the same host as `Host`.
fn strip_authority<'a>(target: &'a [u8], host: Option<&[u8]>) -> Result<&'a [u8], Error> {
    if target.first() == Some(&b'/') {
        return Ok(target);
    }
    let lower: Vec<u8> = target.iter().take(8).map(u8::to_ascii_lowercase).collect();
    let start = [&b"http://"[..], b"https://"].into_iter().find(|scheme| lower.starts_with(scheme)).map(<[u8]>::len);
    let rest = start.map(|start| &target[start..]).ok_or(PathFault::NotAPath)?;
    let slash = memchr::memchr(b'/', rest).ok_or(PathFault::NotAPath)?;
    let (authority, origin_form) = rest.split_at(slash);
    if !host.is_some_and(|host| host.eq_ignore_ascii_case(authority)) {
        return Err(BadRequest::Header("Host").into());
    }
    Ok(origin_form)
}

#[cfg(test)]
mod tests;
