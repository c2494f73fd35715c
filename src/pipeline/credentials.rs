//! Phase 3: reads the token from the header, the subprotocol or the query, in this order. The first place that has one
//! decides; the other places are stripped without being read.

use super::arrive::CheckedRequest;
use super::{Gate, subprotocol};
use crate::config::QueryToken;
use crate::error::{BadRequest, Error, TokenFault};

/// Where a token was found; the label `source` of `authn_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenSource {
    /// `Authorization: Bearer`
    Header,
    /// `Sec-WebSocket-Protocol: bearer.…`
    Subprotocol,
    /// `?token=`
    Query,
}

impl TokenSource {
    /// The metrics label.
    pub fn as_str(self) -> &'static str {
        match self {
            TokenSource::Header => "header",
            TokenSource::Subprotocol => "subprotocol",
            TokenSource::Query => "query",
        }
    }
}

/// The credential of a request, not yet verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential<'a> {
    /// No token.
    None,
    /// What may be a token. Its characters are [checked](Credential::checked) only if it is not cached: a cached token is valid.
    Token(&'a [u8], TokenSource),
    /// Characters that no token has.
    Malformed(TokenSource),
}

/// Reads the credential of a request. Refuses two different tokens in one place.
pub fn read<'a>(gate: &Gate, request: &CheckedRequest<'a>) -> Result<Credential<'a>, Error> {
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

/// Parses `Authorization`: `Bearer` in any case, one space, one token. Other schemes are ignored.
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
        return Ok(if blank { Credential::Malformed(TokenSource::Header) } else { Credential::None });
    };
    // A valid token has no comma, so only a malformed one can hide a second token.
    let has_second = memchr::memchr(b',', token).is_some()
        && token.split(|byte| *byte == b',').skip(1).any(|part| {
            let part = part.trim_ascii_start();
            part.len() > SCHEME.len() && part[..SCHEME.len()].eq_ignore_ascii_case(SCHEME)
        });
    if has_second { Err(BadRequest::TwoTokens) } else { Ok(Credential::Token(token, TokenSource::Header)) }
}

/// Finds the `bearer.` entry of the offered subprotocols.
pub fn from_subprotocols<'a>(lines: &[&'a [u8]]) -> Result<Credential<'a>, BadRequest> {
    let mut found: Option<&'a [u8]> = None;
    for entry in subprotocol::entries(lines) {
        if let Some(token) = subprotocol::bearer_token(entry) {
            if found.is_some_and(|other| other != token) {
                return Err(BadRequest::TwoTokens);
            }
            found = Some(token);
        }
    }
    Ok(match found {
        None | Some(b"") => Credential::None,
        Some(token) => Credential::Token(token, TokenSource::Subprotocol),
    })
}

/// Finds the `token` parameter of a query.
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
        Some(token) => Credential::Token(token.as_bytes(), TokenSource::Query),
    })
}

/// The value of a `token` parameter, whose name may be percent-encoded.
pub fn query_token(pair: &str) -> Option<&str> {
    let (name, value) = pair.split_once('=')?;
    let decodes_to_token =
        || url::form_urlencoded::parse(name.as_bytes()).next().is_some_and(|(name, _)| name == "token");
    (name == "token" || (name.contains('%') && decodes_to_token())).then_some(value)
}

/// Letters, digits and `-_.~+/=`.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~+/=".contains(&byte)
}

impl Credential<'_> {
    /// Checks the characters: what has one that no token has is malformed.
    pub fn checked(self) -> Self {
        match self {
            Credential::Token(token, source) if !token.iter().copied().all(is_token_byte) => {
                Credential::Malformed(source)
            }
            Credential::None | Credential::Token(..) | Credential::Malformed(_) => self,
        }
    }

    /// The refusal of a request whose token is required and missing or malformed.
    pub fn missing(self) -> Error {
        match self {
            Credential::Malformed(_) => Error::InvalidToken(TokenFault::Malformed),
            Credential::None | Credential::Token(..) => Error::NoCredentials,
        }
    }
}

#[cfg(test)]
mod tests;
