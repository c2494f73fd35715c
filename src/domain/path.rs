//! The canonical form of a path, which is matched and forwarded. Paths that an upstream could read differently are
//! refused, so that no rule can be bypassed.

use std::borrow::Cow;

/// The longest path in bytes; bounds the cost of rule conditions.
pub const LONGEST: usize = 8_192;

/// The path has no form that everybody reads alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotPlain;

/// Gives a path its canonical form: escapes of plain letters are undone, the other escapes are in
/// upper case. Dot segments, doubled, encoded or backward slashes, parameters after `;`, controls,
/// bad escapes, doubly encoded bytes and bad UTF-8 are refused.
///
/// A path in canonical form is given back as it is, without a copy.
pub fn canonical(path: &[u8]) -> Result<Cow<'_, str>, NotPlain> {
    if path.first() != Some(&b'/') {
        return Err(NotPlain);
    }
    let mut plain = true;
    let mut segment_start = 1;
    let mut at = 1;
    while at < path.len() {
        match path[at] {
            b'/' => {
                check_segment(&path[segment_start..at])?;
                if at == segment_start {
                    return Err(NotPlain); // `//`
                }
                segment_start = at + 1;
            }
            b'%' => {
                plain = false;
                at += 2;
            }
            byte if is_path_byte(byte) => {}
            _ => return Err(NotPlain),
        }
        at += 1;
    }
    check_segment(path.get(segment_start..).unwrap_or_default())?;
    if plain {
        // Every byte was checked to be ASCII.
        return std::str::from_utf8(path).map(Cow::Borrowed).map_err(|_| NotPlain);
    }
    rewrite(path)
}

/// RFC 3986 `pchar` without `;`, which some upstreams cut off together with what follows.
fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@".contains(&byte)
}

fn check_segment(segment: &[u8]) -> Result<(), NotPlain> {
    if segment == b"." || segment == b".." { Err(NotPlain) } else { Ok(()) }
}

/// The slow path, for paths with escapes.
fn rewrite(path: &[u8]) -> Result<Cow<'_, str>, NotPlain> {
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
            // An encoded dot hides a dot segment; an encoded percent sign hides another escape.
            b'/' | b'\\' | b'.' | b'%' | 0..=0x1f | 0x7f => return Err(NotPlain),
            byte if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) => out.push(byte),
            byte => {
                const HEX: &[u8; 16] = b"0123456789ABCDEF";
                out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
        decoded.push(byte);
        at += 3;
    }
    if std::str::from_utf8(&decoded).is_err() {
        return Err(NotPlain);
    }
    let out = String::from_utf8(out).map_err(|_| NotPlain)?;
    if out.as_bytes() == path {
        // Nothing had to change: the input is returned without the copy.
        return std::str::from_utf8(path).map(Cow::Borrowed).map_err(|_| NotPlain);
    }
    Ok(Cow::Owned(out))
}

fn escape(digits: Option<&[u8]>) -> Result<u8, NotPlain> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    match digits {
        Some([high, low]) => match (digit(*high), digit(*low)) {
            (Some(high), Some(low)) => Ok(high << 4 | low),
            _ => Err(NotPlain),
        },
        _ => Err(NotPlain),
    }
}

/// Whether a query can be forwarded: printable ASCII without `#`.
pub fn is_plain_query(query: &[u8]) -> bool {
    query.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#')
}

#[cfg(test)]
mod tests;
