//! The canonical form of a path, in which rules match it and upstreams get it. A path that an upstream could
//! read as another one is refused, so that no rule can be bypassed by spelling.

use std::borrow::Cow;

use super::byte_set::ByteSet;

/// The longest path, in bytes. Conditions of rules read the whole path, and this bounds their cost.
pub const LONGEST: usize = 8_192;

/// What makes a request target ambiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// The target is neither an absolute path nor an absolute URL.
    #[error("the target is neither a path nor an http URL")]
    NotAPath,
    /// A `.` segment.
    #[error("the path has `.` as a segment")]
    CurrentSegment,
    /// A `..` segment.
    #[error("the path has `..`")]
    ParentSegment,
    /// An empty segment.
    #[error("the path has `//`")]
    EmptySegment,
    /// `%2F`, which some upstreams decode before they split the path.
    #[error("the path has an encoded slash")]
    EncodedSlash,
    /// `\` or `%5C`, which some upstreams read as a slash.
    #[error("the path has a backslash")]
    Backslash,
    /// A `.` or `..` segment with an encoded dot.
    #[error("the path has an encoded dot segment")]
    EncodedDot,
    /// `%25`, which hides another escape.
    #[error("the path is encoded twice")]
    EncodedPercent,
    /// `;`, bare or encoded, which some upstreams cut off together with the rest of the segment.
    #[error("the path has `;`")]
    Semicolon,
    /// An encoded blank at the start or the end of a segment, which some upstreams trim.
    #[error("a segment of the path begins or ends with a blank")]
    Blank,
    /// A NUL byte, raw or encoded.
    #[error("the path has a NUL")]
    Nul,
    /// Another control character, raw or encoded.
    #[error("the path has a control character")]
    Control,
    /// `%` without two hexadecimal digits.
    #[error("the path has a malformed `%` escape")]
    Escape,
    /// The decoded bytes are not UTF-8.
    #[error("the path is not UTF-8")]
    Utf8,
    /// A byte that RFC 3986 does not allow in a path.
    #[error("the path has a character that must be percent-encoded")]
    Character,
    /// A byte that is not allowed in a query: see [`is_valid_query`].
    #[error("the query has a character that must be percent-encoded")]
    Query,
}

/// Returns the canonical form of a path: escapes of characters that may stand bare in a path are decoded, other escapes
/// are written in upper case. Borrows the input if it is canonical already.
///
/// Refuses dot segments, empty segments, encoded slashes, backslashes, `;`, blanks around a segment, control characters,
/// malformed or double escapes and bytes that are not UTF-8.
pub fn canonical(path: &[u8]) -> Result<Cow<'_, str>, PathFault> {
    if path.first() != Some(&b'/') {
        return Err(PathFault::NotAPath);
    }
    let mut has_escapes = false;
    let mut segment_start = 1;
    let mut at = 1;
    while at < path.len() {
        match path[at] {
            b'/' => {
                check_segment(&path[segment_start..at])?;
                if at == segment_start {
                    return Err(PathFault::EmptySegment);
                }
                segment_start = at + 1;
            }
            b'%' => {
                has_escapes = true;
                at += 2;
            }
            byte if PATH_BYTES.contains(byte) => {}
            byte => return Err(fault_of(byte)),
        }
        at += 1;
    }
    check_segment(path.get(segment_start..).unwrap_or_default())?;
    if has_escapes { rewrite(path) } else { borrow(path) }
}

/// RFC 3986 `pchar` without `;`.
static PATH_BYTES: ByteSet = ByteSet::alphanumeric_and(b"-._~!$&'()*+,=:@");

/// The fault of a raw byte that a path may not have.
fn fault_of(byte: u8) -> PathFault {
    match byte {
        0 => PathFault::Nul,
        1..=0x1f | 0x7f => PathFault::Control,
        b'\\' => PathFault::Backslash,
        b';' => PathFault::Semicolon,
        _ => PathFault::Character,
    }
}

fn check_segment(segment: &[u8]) -> Result<(), PathFault> {
    match segment {
        b"." => Err(PathFault::CurrentSegment),
        b".." => Err(PathFault::ParentSegment),
        _ => Ok(()),
    }
}

/// Checks what the segment of a path with escapes stands for. Bare dot segments were refused before.
fn check_decoded_segment(segment: &str) -> Result<(), PathFault> {
    if matches!(segment, "." | "..") {
        return Err(PathFault::EncodedDot);
    }
    // JavaScript's `trim` counts the byte order mark as a blank, too.
    let is_blank = |letter: char| letter.is_whitespace() || letter == '\u{feff}';
    if segment.starts_with(is_blank) || segment.ends_with(is_blank) { Err(PathFault::Blank) } else { Ok(()) }
}

fn borrow(path: &[u8]) -> Result<Cow<'_, str>, PathFault> {
    std::str::from_utf8(path).map(Cow::Borrowed).map_err(|_| PathFault::Utf8)
}

/// The slow path, for paths with escapes.
fn rewrite(path: &[u8]) -> Result<Cow<'_, str>, PathFault> {
    let mut out = Vec::with_capacity(path.len());
    let mut decoded = Vec::with_capacity(path.len());
    let mut at = 0;
    while at < path.len() {
        if path[at] != b'%' {
            out.push(path[at]);
            decoded.push(path[at]);
            at += 1;
            continue;
        }
        let byte = escape(path.get(at + 1..at + 3))?;
        match byte {
            b'/' => return Err(PathFault::EncodedSlash),
            b'%' => return Err(PathFault::EncodedPercent),
            b'\\' | b';' | 0..=0x1f | 0x7f => return Err(fault_of(byte)),
            byte if PATH_BYTES.contains(byte) => out.push(byte),
            byte => {
                const HEX: &[u8; 16] = b"0123456789ABCDEF";
                out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
        decoded.push(byte);
        at += 3;
    }
    let decoded = std::str::from_utf8(&decoded).map_err(|_| PathFault::Utf8)?;
    decoded.split('/').try_for_each(check_decoded_segment)?;
    if out == path {
        return borrow(path);
    }
    String::from_utf8(out).map(Cow::Owned).map_err(|_| PathFault::Utf8)
}

fn escape(digits: Option<&[u8]>) -> Result<u8, PathFault> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    match digits {
        Some([high, low]) => match (digit(*high), digit(*low)) {
            (Some(high), Some(low)) => Ok(high << 4 | low),
            _ => Err(PathFault::Escape),
        },
        _ => Err(PathFault::Escape),
    }
}

/// Folds the case of a canonical path, or of a text to compare it with, as services do that ignore case: decoded, and
/// character by character like Java's `equalsIgnoreCase` and Go's `EqualFold`, not for ASCII alone. Borrows ASCII without
/// capitals and escapes.
pub fn fold_case(path: &str) -> Cow<'_, str> {
    if !path.bytes().any(|byte| byte == b'%' || byte.is_ascii_uppercase() || !byte.is_ascii()) {
        return Cow::Borrowed(path);
    }
    decoded(path).chars().map(fold_letter).collect::<String>().into()
}

/// By way of the capital: letters such as `ſ` and `s` have only that in common.
fn fold_letter(letter: char) -> char {
    let mut upper = letter.to_uppercase();
    let capital = if upper.len() == 1 { upper.next().unwrap_or(letter) } else { letter };
    capital.to_lowercase().next().unwrap_or(capital)
}

/// Decodes every escape of a canonical path.
fn decoded(path: &str) -> Cow<'_, str> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = match escape(tail.get(..2)) {
            Ok(byte) if *first == b'%' => {
                out.push(byte);
                &tail[2..]
            }
            _ => {
                out.push(*first);
                tail
            }
        };
    }
    // The escapes of a canonical path are UTF-8.
    String::from_utf8(out).map_or(Cow::Borrowed(path), Cow::Owned)
}

/// Whether a query has only printable ASCII without `#`. RFC 3986, section 3.4, allows less, but clients also send brackets and the like
/// unescaped.
pub fn is_valid_query(query: &[u8]) -> bool {
    query.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#')
}

#[cfg(test)]
mod tests;
