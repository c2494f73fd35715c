//! Request headers that upstreams act on and that a client must not choose. The gateway removes them all, and sets some of
//! them itself.

use super::identity::{self, folded};

/// Beginnings of headers that describe the request as a proxy received it, or override its method or path.
const FORWARDING: [&[u8]; 6] =
    [b"x-forwarded", b"x-original-", b"x-rewrite-", b"x-http-method", b"x-method-override", b"forwarded"];

/// CGI and its heirs give a program the header `Client-IP` as the variable `HTTP_CLIENT_IP`. Services that look for the
/// variable's name among the headers find what a client sends under that name.
const VARIABLE_PREFIX: &[u8] = b"http-";

const REQUEST_ID: &[u8] = b"x-request-id";

/// The headers that say where a body ends.
const FRAMING: [&[u8]; 2] = [b"content-length", b"transfer-encoding"];

/// Why a request header is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpoofableHeader {
    /// One of the gateway's identity headers.
    Identity,
    /// Another spelling of a header that the gateway sets.
    LookAlike,
    /// A client's address.
    Address,
    /// `Proxy`: CGI programs read it as `HTTP_PROXY` and send their own requests there (httpoxy).
    Proxy,
    /// `Forwarded`, `X-Forwarded-*` or an override of method or path.
    Forwarding,
    /// Another spelling of `Content-Length` or `Transfer-Encoding`: a service that reads it as the header itself would find
    /// another end of the body than the gateway (request smuggling).
    Framing,
}

impl SpoofableHeader {
    /// Classifies a header by its name; `_` and `.` count as `-`. `None` for headers that are forwarded.
    pub fn of(name: &[u8]) -> Option<Self> {
        if starts_folded(name, VARIABLE_PREFIX) {
            return classify(name.get(VARIABLE_PREFIX.len()..)?);
        }
        match classify(name)? {
            Self::LookAlike if starts_with_ignoring_case(name, identity::PREFIX.as_bytes()) => Some(Self::Identity),
            Self::LookAlike if name.eq_ignore_ascii_case(REQUEST_ID) => None,
            Self::Framing if FRAMING.iter().any(|exact| name.eq_ignore_ascii_case(exact)) => None,
            kind => Some(kind),
        }
    }

    /// The label in `identity_headers_removed_total`. Proxies send forwarding headers with every request; those are not
    /// counted, and headers of the framing say nothing about identities.
    pub fn label(self) -> Option<&'static str> {
        match self {
            Self::Identity => Some("exact"),
            Self::LookAlike => Some("folded"),
            Self::Address => Some("address"),
            Self::Proxy => Some("proxy"),
            Self::Forwarding | Self::Framing => None,
        }
    }
}

/// Classifies a name whatever its spelling. Its first letter rules most names out, and leaves few to compare with.
fn classify(name: &[u8]) -> Option<SpoofableHeader> {
    let first = name.first()?.to_ascii_lowercase();
    if addresses(first).iter().any(|address| is_folded(name, address)) {
        return Some(SpoofableHeader::Address);
    }
    match first {
        b'x' if identity::is_look_alike(name) || is_folded(name, REQUEST_ID) => Some(SpoofableHeader::LookAlike),
        b'f' | b'x' if FORWARDING.iter().any(|start| starts_folded(name, start)) => Some(SpoofableHeader::Forwarding),
        b'p' if is_folded(name, b"proxy") => Some(SpoofableHeader::Proxy),
        b'c' | b't' if FRAMING.iter().any(|header| is_folded(name, header)) => Some(SpoofableHeader::Framing),
        _ => None,
    }
}

/// Names that proxies, application servers and content networks give to a client's address, by their first letter.
fn addresses(first: u8) -> &'static [&'static [u8]] {
    match first {
        b'a' => &[b"ali-cdn-real-ip"],
        b'c' => &[b"client-ip", b"cf-connecting-ip", b"cf-connecting-ipv6"],
        b'f' => &[b"fastly-client-ip"],
        b'p' => &[b"proxy-client-ip"],
        b'r' => &[b"remote-addr"],
        b't' => &[b"true-client-ip"],
        b'w' => &[b"wl-proxy-client-ip"],
        b'x' => &[
            b"x-real-ip",
            b"x-client-ip",
            b"x-cluster-client-ip",
            b"x-originating-ip",
            b"x-remote-ip",
            b"x-remote-addr",
            b"x-proxyuser-ip",
            b"x-envoy-external-address",
            b"x-azure-clientip",
            b"x-azure-socketip",
            b"x-appengine-user-ip",
        ],
        _ => &[],
    }
}

fn is_folded(name: &[u8], wanted: &[u8]) -> bool {
    name.len() == wanted.len() && starts_folded(name, wanted)
}

fn starts_folded(name: &[u8], start: &[u8]) -> bool {
    name.len() >= start.len() && name.iter().zip(start).all(|(byte, expected)| folded(*byte) == *expected)
}

fn starts_with_ignoring_case(name: &[u8], start: &[u8]) -> bool {
    name.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start))
}

#[cfg(test)]
mod tests;
