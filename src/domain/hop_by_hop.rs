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

/// The lengths of these names: bit `n` stands for `n` bytes.
const LENGTHS: u32 = {
    let (mut lengths, mut at) = (0, 0);
    while at < HOP_BY_HOP.len() {
        lengths |= 1 << HOP_BY_HOP[at].len();
        at += 1;
    }
    lengths
};

/// Whether a header is hop-by-hop; the case of its name does not matter.
pub fn is_hop_by_hop(name: &[u8]) -> bool {
    // Most other names have a length that none of these has.
    let is_possible = name.len() < 32 && LENGTHS & (1 << name.len()) != 0;
    is_possible && HOP_BY_HOP.iter().any(|listed| listed.as_bytes().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hop_by_hop_headers_are_known_in_any_case_and_no_others_are() {
        for name in HOP_BY_HOP {
            assert!(is_hop_by_hop(name.as_bytes()) && is_hop_by_hop(name.to_uppercase().as_bytes()), "{name}");
            assert!(!is_hop_by_hop(format!("{name}x").as_bytes()), "{name}");
        }
        // Of lengths that hop-by-hop headers have, and of ones beyond any.
        for name in ["", "ab", "content-length", "user-agent", &"x".repeat(32), &"x".repeat(34), &"x".repeat(64)] {
            assert!(!is_hop_by_hop(name.as_bytes()), "{name}");
        }
    }
}
