//! A request head as the fast lane reads it: the client's own bytes, with the names of headers in lower case, and where method, target and
//! header lines are. Takes only heads that can be read in one way; every other one is left to Pingora's lane, which refuses it or knows how
//! to carry it.

use std::ops::Range;

use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Uri};

use super::super::buffer::Buffer;
use super::super::connection::AnnouncedBody;
use super::super::response_framing::decimal;
use super::line_places::LinePlaces;
use crate::domain::byte_set::ByteSet;
use crate::domain::header_name::is;
use crate::domain::hop_by_hop::is_hop_by_hop;
use crate::error::{BadRequest, Error};
use crate::pipeline::head::HeaderLines;

/// The most header lines of a head in the fast lane: as many as `limits.headers` allows by default. A head with more is for Pingora's lane,
/// which goes up to its largest value.
const MOST_LINES: usize = 100;

/// The methods that the fast lane knows.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// A head that the fast lane takes.
pub(super) struct LaneRequest {
    bytes: Buffer,
    method: &'static str,
    target: Range<usize>,
    lines: LinePlaces,
    /// Whether the client asks to close the connection after the response.
    pub(super) wants_close: bool,
    /// Whether it asks for a WebSocket.
    pub(super) is_handshake: bool,
    pub(super) body: AnnouncedBody,
}

impl LaneRequest {
    /// Reads a head, from the request line to the empty line. Gives the bytes back if the fast lane does not take it.
    pub(super) fn read(mut bytes: Buffer) -> Result<Self, Buffer> {
        let Some(shape) = Shape::of(&bytes) else { return Err(bytes) };
        let Shape { method, target, lines, wants_close, is_handshake, body } = shape;
        lines.lower_names(&mut bytes);
        Ok(Self { bytes, method, target, lines, wants_close, is_handshake, body })
    }

    pub(super) fn method(&self) -> &'static str {
        self.method
    }

    /// The method as a type.
    pub(super) fn http_method(&self) -> Method {
        Method::from_bytes(self.method.as_bytes()).unwrap_or_default()
    }

    /// The target as the client sent it.
    pub(super) fn target(&self) -> &[u8] {
        &self.bytes[self.target.clone()]
    }

    /// The path of the target.
    pub(super) fn path(&self) -> &[u8] {
        let target = self.target();
        let end = memchr::memchr(b'?', target).unwrap_or(target.len());
        &target[..end]
    }

    /// `Host`
    pub(super) fn host(&self) -> Option<&[u8]> {
        let mut host = None;
        self.each(&mut |name, value| {
            // The names are in lower case since the head was read.
            if name == b"host" {
                host = Some(value);
            }
        });
        host
    }

    /// The head as the gateway's own endpoints read it.
    pub(super) fn parts(&self) -> Result<Parts, Error> {
        let mut request = http::Request::new(());
        *request.method_mut() = self.http_method();
        *request.uri_mut() = Uri::try_from(self.target()).map_err(|_| BadRequest::Head)?;
        let mut is_valid = true;
        self.each(&mut |name, value| match (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            (Ok(name), Ok(value)) => drop(request.headers_mut().append(name, value)),
            _ => is_valid = false,
        });
        if is_valid { Ok(request.into_parts().0) } else { Err(BadRequest::Head.into()) }
    }

    pub(super) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// The client's bytes, for another lane.
    pub(super) fn into_bytes(self) -> Buffer {
        self.bytes
    }
}

impl HeaderLines for LaneRequest {
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a [u8], &'a [u8])) {
        self.lines.each(&self.bytes, visit);
    }
}

/// What is known of a head that the fast lane takes.
struct Shape {
    method: &'static str,
    target: Range<usize>,
    lines: LinePlaces,
    wants_close: bool,
    is_handshake: bool,
    body: AnnouncedBody,
}

impl Shape {
    fn of(bytes: &[u8]) -> Option<Self> {
        let mut headers = [const { std::mem::MaybeUninit::uninit() }; MOST_LINES];
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(bytes, &mut headers);
        // HTTP/1.0 has no chunks, and its connections do not stay open by themselves: Pingora's lane knows that.
        if parsed != Ok(httparse::Status::Complete(bytes.len())) || request.version != Some(1) {
            return None;
        }
        let method = request.method?;
        let method = METHODS.into_iter().find(|known| *known == method)?;
        let target = request.path?;
        // Exactly one space on each side, and nothing before the method: `httparse` skips empty lines.
        let start = method.len() + 1;
        let line_end = start + target.len() + " HTTP/1.1\r\n".len();
        let is_plain = target.starts_with('/')
            && TARGET_BYTES.contains_all(target)
            && bytes.starts_with(method.as_bytes())
            && bytes.get(start..start + target.len()) == Some(target.as_bytes())
            && bytes.get(start + target.len()..line_end) == Some(b" HTTP/1.1\r\n")
            && has_plain_line_ends(bytes, request.headers);
        if !is_plain {
            return None;
        }
        let (mut hosts, mut connections, mut upgrades) = (0, 0, 0);
        let mut options = ConnectionOptions::default();
        let mut announced = None;
        for header in request.headers.iter() {
            let name = header.name.as_bytes();
            match name.len() {
                // Pingora's parser refuses a user in it, before anything else is looked at.
                4 if is(name, b"host") && memchr::memchr(b'@', header.value).is_some() => return None,
                4 if is(name, b"host") => hosts += 1,
                10 if is(name, b"connection") => {
                    connections += 1;
                    options = ConnectionOptions::of(header.value)?;
                }
                7 if is(name, b"upgrade") && header.value.eq_ignore_ascii_case(b"websocket") => upgrades += 1,
                6 if is(name, b"expect") => return None,
                14 | 17 if is_framing(name) => {
                    let earlier = announced.replace(announced_body(name, header.value)?);
                    // Two lengths, or a length and chunks, have two meanings.
                    if earlier.is_some() {
                        return None;
                    }
                }
                // Also an `Upgrade` to anything else.
                _ if is_hop_by_hop(name) => return None,
                _ => {}
            }
        }
        let body = announced.unwrap_or(AnnouncedBody::NONE);
        let is_handshake = options.upgrade && upgrades == 1 && method == "GET" && announced.is_none();
        // Either all of a handshake or nothing of it.
        let is_clear = is_handshake || !options.upgrade && upgrades == 0;
        let target = start..start + target.len();
        let lines = || LinePlaces::of(bytes, request.headers);
        let shape = || Self { method, target, lines: lines(), wants_close: options.close, is_handshake, body };
        (hosts == 1 && connections <= 1 && is_clear).then(shape)
    }
}

/// What `Connection` says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ConnectionOptions {
    close: bool,
    upgrade: bool,
}

impl ConnectionOptions {
    /// `None` if it says anything else than what the fast lane knows: `keep-alive`, `close`, and the `Upgrade` of a handshake.
    fn of(value: &[u8]) -> Option<Self> {
        let mut options = Self::default();
        for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            match option {
                close if is(close, b"close") => options.close = true,
                upgrade if is(upgrade, b"upgrade") => options.upgrade = true,
                alive if is(alive, b"keep-alive") => {}
                _ => return None,
            }
        }
        Some(options)
    }
}

/// What a framing header announces; `None` if it can be read in another way, or is only taken for one by some servers.
fn announced_body(name: &[u8], value: &[u8]) -> Option<AnnouncedBody> {
    if is(name, b"content-length") {
        decimal(value).map(AnnouncedBody::Length)
    } else {
        let is_chunked = is(name, b"transfer-encoding") && value.eq_ignore_ascii_case(b"chunked");
        is_chunked.then_some(AnnouncedBody::Chunked)
    }
}

/// The bytes that a path and a query may have (RFC 3986, sections 3.3 and 3.4). In Pingora's lane others are refused in a path; in a query
/// it knows some that clients send all the same, such as brackets.
static TARGET_BYTES: ByteSet = ByteSet::alphanumeric_and(b"/?%-._~!$&'()*+,;=:@");

/// Whether every line of a parsed head ends with CR LF. The parser takes a bare LF, too; it takes no CR anywhere else.
fn has_plain_line_ends(bytes: &[u8], headers: &[httparse::Header<'_>]) -> bool {
    let starts = headers.iter().map(|header| header.name.as_ptr() as usize - bytes.as_ptr() as usize);
    starts.chain([bytes.len() - 2]).all(|start| bytes[..start].ends_with(b"\r\n")) && bytes.ends_with(b"\r\n")
}

/// Whether a name is `Content-Length` or `Transfer-Encoding`, or is taken for one by servers that read `_` as `-`.
fn is_framing(name: &[u8]) -> bool {
    let folded = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    let is_like =
        |other: &[u8]| name.len() == other.len() && name.iter().map(|byte| folded(*byte)).eq(other.iter().copied());
    is_like(b"content-length") || is_like(b"transfer-encoding")
}

#[cfg(test)]
mod tests;
