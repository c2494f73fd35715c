//! WebSocket handshakes (RFC 6455): validation (the last step of phase 1), the subprotocols offered to the upstream,
//! and the one that the client gets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::head::{Fields, HttpVersion, RequestHead};
use super::subprotocol::bearer_token;
use crate::error::{BadRequest, Error};

/// A valid WebSocket handshake.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Handshake {
    /// The canonical path, with which a reload finds the socket's rule again.
    pub path: String,
    /// The subprotocols offered to the upstream.
    offered: Vec<String>,
    /// The client's `bearer.<token>` entry, which the response echoes if the upstream selects no subprotocol.
    bearer: Option<String>,
}

/// Validates the handshake of a request; `None` without `Upgrade`, and with `h2c`, which a server may ignore (RFC 9110, section 7.8)
/// and RFC 9113 has made obsolete. Other upgrades are refused.
pub fn handshake(head: &RequestHead<'_>, fields: &Fields<'_>) -> Result<Option<Handshake>, Error> {
    let upgrade = fields.upgrade.filter(|upgrade| !upgrade.eq_ignore_ascii_case(b"h2c"));
    let Some(upgrade) = upgrade else { return Ok(None) };
    let is_websocket = upgrade.eq_ignore_ascii_case(b"websocket")
        && fields.connection_upgrade
        && head.version == HttpVersion::Http11
        && head.method == "GET"
        && !head.has_body(fields);
    if !is_websocket {
        return Err(BadRequest::Upgrade.into());
    }
    match fields.websocket_version {
        Some(b"13") => {}
        Some(_) => return Err(Error::WebSocketVersion),
        None => return Err(BadRequest::Upgrade.into()),
    }
    let key = fields.websocket_key.and_then(|key| STANDARD.decode(key).ok());
    if key.is_none_or(|key| key.len() != 16) {
        return Err(BadRequest::Upgrade.into());
    }
    Ok(Some(Handshake::default()))
}

/// The subprotocol of the response.
#[derive(Debug, PartialEq, Eq)]
pub enum Negotiated<'a> {
    /// The upstream's choice, or the echoed token.
    Protocol(&'a str),
    /// None.
    None,
    /// The upstream selected one that was not offered; the handshake fails.
    NotOffered,
}

impl Handshake {
    /// Copies the client's entries. Tokens are not offered to the upstream unless the rule forwards them.
    pub(super) fn offer<'a>(&mut self, entries: impl Iterator<Item = &'a [u8]>, forwards_token: bool) {
        for entry in entries {
            // A subprotocol is a token of RFC 9110 and therefore ASCII; anything else cannot be selected.
            let Ok(text) = std::str::from_utf8(entry) else { continue };
            if bearer_token(entry).is_some() {
                self.bearer.get_or_insert_with(|| text.to_owned());
                if !forwards_token {
                    continue;
                }
            }
            self.offered.push(text.to_owned());
        }
    }

    /// The `Sec-WebSocket-Protocol` for the upstream.
    pub fn offered(&self) -> Option<String> {
        (!self.offered.is_empty()).then(|| self.offered.join(", "))
    }

    /// Maps the upstream's selection to the client's response.
    pub fn negotiate<'a>(&'a self, selected: Option<&str>) -> Negotiated<'a> {
        match selected {
            Some(selected) => match self.offered.iter().find(|offered| *offered == selected) {
                Some(offered) => Negotiated::Protocol(offered),
                None => Negotiated::NotOffered,
            },
            // Browsers fail a handshake whose response selects none of the offered entries.
            None => self.bearer.as_deref().map_or(Negotiated::None, Negotiated::Protocol),
        }
    }
}
