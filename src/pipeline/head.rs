//! A borrowed view of a request's head, independent of the HTTP implementation that parsed it.

use std::net::IpAddr;

use crate::domain::header_name::is;
use crate::domain::hop_by_hop::is_hop_by_hop;
use crate::domain::own_cookie;
use crate::domain::spoofable::SpoofableHeader;

/// The HTTP version of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2
    Http2,
}

/// The header lines of a request, in order.
pub trait HeaderLines: Sync {
    /// Calls `visit` with the name and the value of every line; a repeated name is visited once per line. Names are bytes, because
    /// checking again that they are text costs more than comparing them.
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a [u8], &'a [u8]));
}

/// A request's head. Borrowed, so that a decision copies nothing.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    /// The method, as the client sent it.
    pub method: &'a str,
    /// The request target, as the client sent it.
    pub target: &'a [u8],
    /// The HTTP version.
    pub version: HttpVersion,
    /// The `:authority` of HTTP/2, which takes the place of `Host`.
    pub authority: Option<&'a [u8]>,
    /// The header lines.
    pub lines: &'a dyn HeaderLines,
    /// The raw bytes of an HTTP/1 head whose lines have yet to be checked.
    pub raw: Option<&'a [u8]>,
    /// Whether the HTTP/2 stream goes on after the head. HTTP/1 announces a body in its headers instead.
    pub stream_goes_on: bool,
    /// The address of the connection's other end.
    pub peer: IpAddr,
    /// How the request arrived.
    pub transport: Transport,
}

/// How a request arrives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Transport {
    /// Without TLS.
    #[default]
    Plain,
    /// Without TLS, on a listener that redirects to HTTPS.
    Redirected,
    /// Over TLS.
    Tls,
}

impl RequestHead<'_> {
    /// Whether a body follows. On HTTP/2 no header needs to announce it.
    pub(super) fn has_body(&self, fields: &Fields<'_>) -> bool {
        self.stream_goes_on
            || fields.transfer_encoding.is_some()
            || fields.content_length.is_some_and(|length| length != b"0")
    }
}

/// Kinds of headers to remove or rewrite before forwarding; most requests have none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnwantedHeaders {
    /// Headers that a client must not choose.
    pub spoofable: bool,
    /// `Sec-WebSocket-Protocol` outside a handshake.
    pub subprotocol: bool,
    /// Several `Cookie` lines, as HTTP/2 allows.
    pub cookie_crumbs: bool,
    /// Cookies of the gateway.
    pub own_cookies: bool,
}

/// A header whose value is a list. Several lines are one list (RFC 9110, section 5.3); one line needs no allocation.
#[derive(Debug, Default)]
pub struct ListField<'a> {
    first: Option<&'a [u8]>,
    more: Vec<&'a [u8]>,
}

impl<'a> ListField<'a> {
    fn push(&mut self, line: &'a [u8]) {
        match self.first {
            None => self.first = Some(line),
            Some(_) => self.more.push(line),
        }
    }

    /// The lines in order.
    pub(super) fn lines(&self) -> impl Iterator<Item = &'a [u8]> {
        self.first.into_iter().chain(self.more.iter().copied())
    }

    /// Whether the request has no such header. An empty one is present.
    pub(super) fn is_absent(&self) -> bool {
        self.first.is_none()
    }

    /// Bytes of all lines.
    pub(super) fn bytes(&self) -> usize {
        self.lines().map(<[u8]>::len).sum()
    }

    /// The elements in order, without empty ones and without spaces around them.
    pub(super) fn elements(&self) -> impl Iterator<Item = &'a [u8]> {
        let elements = self.lines().flat_map(|line| line.split(|byte| *byte == b','));
        elements.map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
    }
}

/// The header fields that decisions depend on, collected in one pass.
#[derive(Debug, Default)]
pub struct Fields<'a> {
    /// `Host`
    pub host: Option<&'a [u8]>,
    /// `Authorization`
    pub authorization: Option<&'a [u8]>,
    /// `Upgrade`
    pub upgrade: Option<&'a [u8]>,
    /// Whether `Connection` lists `upgrade`.
    pub connection_upgrade: bool,
    /// `Sec-WebSocket-Key`
    pub websocket_key: Option<&'a [u8]>,
    /// `Sec-WebSocket-Version`
    pub websocket_version: Option<&'a [u8]>,
    /// `Sec-WebSocket-Protocol`, line by line.
    pub websocket_protocols: Vec<&'a [u8]>,
    /// `Origin`
    pub origin: Option<&'a [u8]>,
    /// `Access-Control-Request-Method`
    pub requested_method: Option<&'a [u8]>,
    /// `Access-Control-Request-Headers`, line by line.
    pub requested_headers: Vec<&'a [u8]>,
    /// `Content-Length`
    pub content_length: Option<&'a [u8]>,
    /// `Content-Type`
    pub content_type: Option<&'a [u8]>,
    /// `Transfer-Encoding`
    pub transfer_encoding: Option<&'a [u8]>,
    /// `Expect`
    pub expect: Option<&'a [u8]>,
    /// `X-Forwarded-For`
    pub forwarded_for: ListField<'a>,
    /// `Forwarded`
    pub forwarded: ListField<'a>,
    /// `X-Request-Id`
    pub request_id: Option<&'a [u8]>,
    /// `traceparent`
    pub traceparent: Option<&'a [u8]>,
    /// `Accept-Language`
    pub accept_language: Option<&'a [u8]>,
    /// `User-Agent`
    pub user_agent: Option<&'a [u8]>,
    /// `Cookie`, line by line.
    pub cookies: Vec<&'a [u8]>,
    /// A header that must not be repeated, and is. Of several the first by its name, because the lanes keep the lines in different orders.
    pub repeated: Option<&'static str>,
    /// The kinds of headers to remove before forwarding.
    pub unwanted: UnwantedHeaders,
    /// Whether there are hop-by-hop headers besides `Connection: keep-alive` or `close`.
    pub hop_by_hop: bool,
    /// Number of lines.
    pub count: usize,
    /// Bytes of names and values.
    pub bytes: usize,
}

impl<'a> Fields<'a> {
    /// Collects the fields.
    pub fn of(lines: &'a dyn HeaderLines) -> Self {
        let mut fields = Fields::default();
        lines.each(&mut |name, value| fields.take(name, value));
        fields
    }

    fn take(&mut self, name: &'a [u8], value: &'a [u8]) {
        self.count += 1;
        self.bytes += name.len() + value.len() + 4;
        // Names come in lower case (HTTP/2) or as sent; the first letter rules out most of them.
        let first = name.first().map_or(0, u8::to_ascii_lowercase);
        match first {
            b'a' if is(name, b"authorization") => {
                once(&mut self.authorization, value, "Authorization", &mut self.repeated)
            }
            b'a' if is(name, b"accept-language") => self.accept_language = Some(value),
            b'a' if is(name, b"access-control-request-method") => {
                once(&mut self.requested_method, value, "Access-Control-Request-Method", &mut self.repeated);
            }
            b'a' if is(name, b"access-control-request-headers") => self.requested_headers.push(value),
            b'c' if is(name, b"connection") => {
                self.connection_upgrade |= lists(value, "upgrade");
                self.hop_by_hop |= !is(value, b"keep-alive") && !is(value, b"close");
            }
            b'c' if is(name, b"content-length") => {
                once(&mut self.content_length, value, "Content-Length", &mut self.repeated);
            }
            b'c' if is(name, b"content-type") => {
                once(&mut self.content_type, value, "Content-Type", &mut self.repeated)
            }
            b'c' if is(name, b"cookie") => {
                self.unwanted.cookie_crumbs |= !self.cookies.is_empty();
                self.unwanted.own_cookies |= own_cookie::is_in(value);
                self.cookies.push(value);
            }
            b'e' if is(name, b"expect") => once(&mut self.expect, value, "Expect", &mut self.repeated),
            b'f' if is(name, b"forwarded") => {
                self.unwanted.spoofable = true;
                self.forwarded.push(value);
            }
            b'h' if is(name, b"host") => once(&mut self.host, value, "Host", &mut self.repeated),
            b'o' if is(name, b"origin") => once(&mut self.origin, value, "Origin", &mut self.repeated),
            b's' if is(name, b"sec-websocket-key") => {
                once(&mut self.websocket_key, value, "Sec-WebSocket-Key", &mut self.repeated);
            }
            b's' if is(name, b"sec-websocket-version") => {
                once(&mut self.websocket_version, value, "Sec-WebSocket-Version", &mut self.repeated);
            }
            b's' if is(name, b"sec-websocket-protocol") => self.websocket_protocols.push(value),
            b't' if is(name, b"transfer-encoding") => {
                once(&mut self.transfer_encoding, value, "Transfer-Encoding", &mut self.repeated);
            }
            b't' if is(name, b"traceparent") => self.traceparent = Some(value),
            b'u' if is(name, b"upgrade") => {
                self.hop_by_hop = true;
                once(&mut self.upgrade, value, "Upgrade", &mut self.repeated);
            }
            b'u' if is(name, b"user-agent") => self.user_agent = Some(value),
            b'x' => self.take_extension(name, value),
            b'h' | b'k' | b'p' | b't' if is_hop_by_hop(name) => self.hop_by_hop = true,
            _ => self.unwanted.spoofable |= SpoofableHeader::of(name).is_some(),
        }
    }

    fn take_extension(&mut self, name: &'a [u8], value: &'a [u8]) {
        if is(name, b"x-request-id") {
            self.request_id = Some(value);
            return;
        }
        if is(name, b"x-forwarded-for") {
            self.forwarded_for.push(value);
        }
        self.unwanted.spoofable |= SpoofableHeader::of(name).is_some();
    }
}

fn once<'a>(slot: &mut Option<&'a [u8]>, value: &'a [u8], name: &'static str, repeated: &mut Option<&'static str>) {
    if slot.replace(value).is_some() {
        *repeated = Some(repeated.map_or(name, |other| other.min(name)));
    }
}

/// Whether a comma-separated list has an entry, in any case.
pub fn lists(value: &[u8], word: impl AsRef<[u8]>) -> bool {
    value.split(|byte| *byte == b',').any(|entry| entry.trim_ascii().eq_ignore_ascii_case(word.as_ref()))
}
