//! The gateway's own cookies among those of a request. They are sent with every path, because `__Host-` wants
//! `Path=/`, and must not reach an upstream.

/// Begins the name of every cookie that the gateway sets.
pub const PREFIX: &str = "deskgate_";

/// Stands before the name where the public URL is https: browsers accept such a cookie only from this host, over
/// HTTPS and for all paths, so that no other host of the domain can plant one.
pub const HOST_PREFIX: &str = "__Host-";

/// How the gateway's cookies are named and restricted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CookieScope {
    /// `__Host-`: this host alone, HTTPS, all paths. Where the public URL is https.
    Host,
    /// Plain names and narrow paths, for HTTP.
    Plain,
}

/// Whether a `Cookie` line has a cookie of the gateway.
pub fn is_in(line: &[u8]) -> bool {
    line.split(|byte| *byte == b';').any(is_own)
}

/// A `Cookie` line without the gateway's cookies; nothing if no other is left.
pub fn remove_from(line: &[u8]) -> Option<Vec<u8>> {
    let others: Vec<&[u8]> =
        line.split(|byte| *byte == b';').filter(|pair| !is_own(pair)).map(<[u8]>::trim_ascii).collect();
    (!others.is_empty()).then(|| others.join(&b"; "[..]))
}

fn is_own(pair: &[u8]) -> bool {
    let pair = pair.trim_ascii();
    pair.strip_prefix(HOST_PREFIX.as_bytes()).unwrap_or(pair).starts_with(PREFIX.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_gateways_cookies_are_removed() {
        for (case, line, kept) in [
            ("others only", "a=1; b=2", Some("a=1; b=2")),
            ("ours only", "deskgate_browser=x", None),
            ("ours over HTTPS", "__Host-deskgate_flow_a=x;__Host-deskgate_browser=y", None),
            ("ours between others", "a=1; __Host-deskgate_browser=x; b=deskgate_", Some("a=1; b=deskgate_")),
            ("a name that only contains ours", "my_deskgate_a=1", Some("my_deskgate_a=1")),
        ] {
            assert_eq!(remove_from(line.as_bytes()).as_deref(), kept.map(str::as_bytes), "{case}");
            assert_eq!(is_in(line.as_bytes()), kept != Some(line), "{case}");
        }
    }
}
