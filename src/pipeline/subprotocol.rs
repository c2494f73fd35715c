//! `Sec-WebSocket-Protocol` lists, in which browsers carry the token as `bearer.<token>`.

/// The prefix of the entry that carries a token.
const BEARER: &str = "bearer.";

/// The entries of all `Sec-WebSocket-Protocol` lines.
pub fn entries<'a, 'b>(lines: &'b [&'a [u8]]) -> impl Iterator<Item = &'a [u8]> + use<'a, 'b> {
    lines.iter().flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii).filter(|e| !e.is_empty())
}

/// The token of a `bearer.` entry. The prefix matches in any case, so that no spelling reaches the upstream.
pub fn bearer_token(entry: &[u8]) -> Option<&[u8]> {
    let prefix = entry.get(..BEARER.len())?;
    prefix.eq_ignore_ascii_case(BEARER.as_bytes()).then(|| &entry[BEARER.len()..])
}
