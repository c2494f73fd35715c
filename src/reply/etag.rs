//! Entity tags (RFC 9110, sections 8.8.3 and 13.1.2): computes them and matches them with `If-None-Match`. The 304 is
//! left to the caller.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::IF_NONE_MATCH;
use http::{HeaderMap, HeaderValue};

/// The strong entity tag of a body: its SHA-256, so that every gateway computes the same one.
pub(super) fn of(body: &[u8]) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("\"{}\"", URL_SAFE_NO_PAD.encode(digest(&SHA256, body)))).ok()
}

/// Whether the request's `If-None-Match` has this tag. The comparison is weak, because caches may weaken tags. Our tags
/// contain no comma, so a list can be split at every one.
pub(super) fn matches(tag: &HeaderValue, request: &HeaderMap) -> bool {
    let equal = |listed: &[u8]| listed == b"*" || listed.strip_prefix(b"W/").unwrap_or(listed) == tag.as_bytes();
    let mut lists = request.get_all(IF_NONE_MATCH).iter();
    lists.any(|list| list.as_bytes().split(|byte| *byte == b',').any(|listed| equal(listed.trim_ascii())))
}

#[cfg(test)]
mod tests;
