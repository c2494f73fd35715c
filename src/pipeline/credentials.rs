//! Third phase: the token, from where the client may put it. The first place that has one decides;
//! the others are removed unread.

use super::Gate;
use super::arrive::Request;
use crate::config::QueryToken;
use crate::error::{BadRequest, Error, TokenFault};

/// Where a token was found; the label `source` of `authn_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// `Authorization: Bearer`
    Header,
    /// `Sec-WebSocket-Protocol: bearer.…`
    Subprotocol,
    /// `?token=`
    Query,
}

impl Source {
    /// As metrics spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Header => "header",
            Source::Subprotocol => "subprotocol",
            Source::Query => "query",
        }
    }
}

/// What a caller shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential<'a> {
    /// Nothing.
    None,
    /// A token, not yet believed.
    Token(&'a str, Source),
    /// Something in a token's place that can be none.
    Malformed(Source),
}

/// The prefix of the subprotocol that carries a token.
pub const SUBPROTOCOL: &str = "bearer.";

/// Reads the caller's token.
pub fn read<'a>(gate: &Gate, request: &Request<'a>) -> Result<Credential<'a>, Error> {
    if let Some(value) = request.fields.authorization {
        let found = from_header(value)?;
        if found != Credential::None {
            return Ok(found);
        }
    }
    if request.handshake.is_none() {
        return Ok(Credential::None);
    }
    let found = from_subprotocols(&request.fields.websocket_protocols)?;
    if found != Credential::None || gate.query_token == QueryToken::Refused {
        return Ok(found);
    }
    let found = from_query(request.query)?;
    if found != Credential::None {
        gate.metrics.websocket_query_tokens.inc();
    }
    Ok(found)
}

/// `Bearer` in any case, one space, one token. Another scheme is no credential of ours.
pub fn from_header(value: &[u8]) -> Result<Credential<'_>, BadRequest> {
    const SCHEME: &[u8] = b"bearer";
    let Some(scheme) = value.get(..SCHEME.len()) else { return Ok(Credential::None) };
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return Ok(Credential::None);
    }
    let rest = &value[SCHEME.len()..];
    if rest.trim_ascii().is_empty() {
        return Ok(Credential::None);
    }
    let Some(token) = rest.strip_prefix(b" ") else {
        // `Bearerx` is another scheme; a tab is not the separator.
        let blank = rest.first().is_some_and(u8::is_ascii_whitespace);
        return Ok(if blank { Credential::Malformed(Source::Header) } else { Credential::None });
    };
    let found = token_of(token, Source::Header);
    // A token has no comma: what is one needs no second look.
    let second = matches!(found, Credential::Malformed(_))
        && token.split(|byte| *byte == b',').skip(1).any(|part| {
            let part = part.trim_ascii_start();
            part.len() > SCHEME.len() && part[..SCHEME.len()].eq_ignore_ascii_case(SCHEME)
        });
    if second { Err(BadRequest::TwoTokens) } else { Ok(found) }
}

/// The `bearer.` entry of the offered subprotocols.
pub fn from_subprotocols<'a>(lines: &[&'a [u8]]) -> Result<Credential<'a>, BadRequest> {
    let mut found: Option<&'a [u8]> = None;
    for entry in entries(lines) {
        if let Some(token) = bearer_of(entry) {
            if found.is_some_and(|other| other != token) {
                return Err(BadRequest::TwoTokens);
            }
            found = Some(token);
        }
    }
    Ok(match found {
        None | Some(b"") => Credential::None,
        Some(token) => token_of(token, Source::Subprotocol),
    })
}

/// The `token` parameters of a query.
pub fn from_query(query: Option<&str>) -> Result<Credential<'_>, BadRequest> {
    let mut found: Option<&str> = None;
    for pair in query.unwrap_or_default().split('&') {
        if let Some(token) = query_token(pair) {
            if found.is_some_and(|other| other != token) {
                return Err(BadRequest::TwoTokens);
            }
            found = Some(token);
        }
    }
    Ok(match found {
        None | Some("") => Credential::None,
        Some(token) => token_of(token.as_bytes(), Source::Query),
    })
}

/// The value of a `token` parameter. Its name counts in every spelling that an upstream would decode.
pub fn query_token(pair: &str) -> Option<&str> {
    let (name, value) = pair.split_once('=')?;
    let plain = name == "token";
    let spelled = || url::form_urlencoded::parse(name.as_bytes()).next().is_some_and(|(name, _)| name == "token");
    (plain || (name.contains('%') && spelled())).then_some(value)
}

/// The entries of all `Sec-WebSocket-Protocol` lines.
pub fn entries<'a, 'b>(lines: &'b [&'a [u8]]) -> impl Iterator<Item = &'a [u8]> + use<'a, 'b> {
    lines.iter().flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii).filter(|e| !e.is_empty())
}

/// The token of a `bearer.` entry. The prefix counts in any case: another spelling must not slip past.
pub fn bearer_of(entry: &[u8]) -> Option<&[u8]> {
    let prefix = entry.get(..SUBPROTOCOL.len())?;
    prefix.eq_ignore_ascii_case(SUBPROTOCOL.as_bytes()).then(|| &entry[SUBPROTOCOL.len()..])
}

fn token_of(bytes: &[u8], source: Source) -> Credential<'_> {
    match std::str::from_utf8(bytes) {
        Ok(token) if bytes.iter().fold(true, |plain, byte| plain & is_plain(*byte)) => Credential::Token(token, source),
        _ => Credential::Malformed(source),
    }
}

/// Letters, digits and `-_.~+/=`. Written, and used, without a branch: so the compiler looks at many bytes of a
/// token at once, and every request has one.
fn is_plain(byte: u8) -> bool {
    let letter = (byte | 0x20).wrapping_sub(b'a') < 26;
    // `-`, `.`, `/` and the digits stand in one row.
    let row = byte.wrapping_sub(b'-') <= b'9' - b'-';
    letter | row | (byte == b'_') | (byte == b'~') | (byte == b'+') | (byte == b'=')
}

impl Credential<'_> {
    /// The refusal for a place where a token was needed.
    pub fn missing(self) -> Error {
        match self {
            Credential::Malformed(_) => Error::InvalidToken(TokenFault::Malformed),
            Credential::None | Credential::Token(..) => Error::NoCredentials,
        }
    }
}

#[cfg(test)]
mod tests;
