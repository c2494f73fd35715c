//! Hop-by-hop headers (RFC 9110, section 7.6.1): the only list of them. Headers that `Connection` nominates are left to
//! the lane that forwards the request.

/// The names of all hop-by-hop headers, in lower case. Pingora's proxy removes the same ones.
pub const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether a header is hop-by-hop; the case of its name does not matter.
pub fn is_hop_by_hop(name: &[u8]) -> bool {
    HOP_BY_HOP.iter().any(|listed| listed.as_bytes().eq_ignore_ascii_case(name))
}
