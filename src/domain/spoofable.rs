//! Request headers that upstreams act on and that a client must not choose. The gateway removes them all, and sets some of
//! them itself.

use super::identity::{self, folded};

/// Addresses of clients, under the names that proxies and content networks give them.
const ADDRESSES: [&[u8]; 12] = [
    b"x-real-ip",
    b"x-client-ip",
    b"x-cluster-client-ip",
    b"x-originating-ip",
    b"x-remote-ip",
    b"x-remote-addr",
    b"true-client-ip",
    b"cf-connecting-ip",
    b"cf-connecting-ipv6",
    b"fastly-client-ip",
    b"client-ip",
    b"proxy-client-ip",
];

/// Beginnings of headers that describe the request as a proxy received it, or override its method or path.
const FORWARDING: [&[u8]; 6] =
    [b"x-forwarded", b"x-original-", b"x-rewrite-", b"x-http-method", b"x-method-override", b"forwarded"];

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
}

impl SpoofableHeader {
    /// Classifies a header by its name; `_` and `.` count as `-`. `None` for headers that are forwarded.
    pub fn of(name: &str) -> Option<Self> {
        let name = name.as_bytes();
        // Most names are ruled out by their first letter.
        if !matches!(name.first()?.to_ascii_lowercase(), b'c' | b'f' | b'p' | b't' | b'x') {
            return None;
        }
        if identity::is_look_alike(name) {
            let is_exact = starts_with_ignoring_case(name, identity::PREFIX.as_bytes());
            return Some(if is_exact { Self::Identity } else { Self::LookAlike });
        }
        if ADDRESSES.iter().any(|address| is_folded(name, address)) {
            return Some(Self::Address);
        }
        if FORWARDING.iter().any(|start| starts_folded(name, start)) {
            return Some(Self::Forwarding);
        }
        const REQUEST_ID: &[u8] = b"x-request-id";
        if is_folded(name, REQUEST_ID) && !name.eq_ignore_ascii_case(REQUEST_ID) {
            return Some(Self::LookAlike);
        }
        is_folded(name, b"proxy").then_some(Self::Proxy)
    }

    /// The label in `identity_headers_removed_total`. Proxies send forwarding headers with every request; those are not
    /// counted.
    pub fn label(self) -> Option<&'static str> {
        match self {
            Self::Identity => Some("exact"),
            Self::LookAlike => Some("folded"),
            Self::Address => Some("address"),
            Self::Proxy => Some("proxy"),
            Self::Forwarding => None,
        }
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
