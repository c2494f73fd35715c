//! Entity tags: by them a client asks for what it keeps only if it has changed (RFC 9110, sections 8.8.3 and 13.1.2).

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::IF_NONE_MATCH;
use http::{HeaderMap, HeaderValue};

/// The strong tag of these bytes: no others have it, on whichever gateway they were made.
pub fn of(body: &[u8]) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("\"{}\"", URL_SAFE_NO_PAD.encode(digest(&SHA256, body)))).ok()
}

/// Whether a client says that it has an answer with this tag. A cache on the way may have made the tag weak, which does
/// not matter here. Our tags have no comma in them, so a list can be cut at each.
pub fn is_named(tag: &HeaderValue, asked: &HeaderMap) -> bool {
    let same = |named: &[u8]| named == b"*" || named.strip_prefix(b"W/").unwrap_or(named) == tag.as_bytes();
    let mut lists = asked.get_all(IF_NONE_MATCH).iter();
    lists.any(|list| list.as_bytes().split(|byte| *byte == b',').any(|named| same(named.trim_ascii())))
}

#[cfg(test)]
mod tests;
