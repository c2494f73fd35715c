//! Trusted domains: the exact host, and the port if it is not the scheme's. No wildcards and no
//! sub-domains; scheme and path do not matter.

use url::Url;

/// The domain of an address, as an administrator would write it.
pub fn domain(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// Whether a domain is the one that an administrator wrote.
pub fn same(trusted: &str, domain: &str) -> bool {
    trusted.eq_ignore_ascii_case(domain)
}
