//! WebSocket handshakes: what a proper one is, what the upstream gets to see of it, and which
//! subprotocol the client is told.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::credentials::bearer_of;
use super::head::{Fields, HttpVersion, RequestHead};
use crate::error::{BadRequest, Error};

/// A proper WebSocket handshake.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Handshake {
    /// The path in its one form, by which the socket is judged as long as it is open.
    pub path: String,
    /// The subprotocols that the upstream gets to choose from.
    offered: Vec<String>,
    /// The client's own `bearer.<token>` entry, echoed when the upstream chooses none.
    bearer: Option<String>,
}

/// The handshake of a request, if it is one. Anything that upgrades otherwise is refused.
pub fn handshake(head: &RequestHead<'_>, fields: &Fields<'_>) -> Result<Option<Handshake>, Error> {
    let Some(upgrade) = fields.upgrade else { return Ok(None) };
    let proper = upgrade.eq_ignore_ascii_case(b"websocket")
        && fields.connection_upgrade
        && head.version == HttpVersion::Http11
        && head.method == "GET"
        && fields.transfer_encoding.is_none()
        && fields.content_length.is_none_or(|length| length == b"0");
    if !proper {
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

/// What the client is told about its subprotocol.
#[derive(Debug, PartialEq, Eq)]
pub enum Negotiated<'a> {
    /// This one.
    Protocol(&'a str),
    /// None was offered or chosen.
    None,
    /// The upstream chose one that was not offered: it cannot be believed.
    NotOffered,
}

impl Handshake {
    /// Sorts the offered entries: tokens are kept from the upstream unless the rule says otherwise.
    pub(super) fn offer<'a>(&mut self, entries: impl Iterator<Item = &'a [u8]>, keeps_token: bool) {
        for entry in entries {
            // A header value that is not text offers nothing that anybody could choose.
            let Ok(text) = std::str::from_utf8(entry) else { continue };
            if bearer_of(entry).is_some() {
                self.bearer.get_or_insert_with(|| text.to_owned());
                if !keeps_token {
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

    /// What the client is told when the upstream chose `chosen`.
    pub fn negotiate<'a>(&'a self, chosen: Option<&str>) -> Negotiated<'a> {
        match chosen {
            Some(chosen) => match self.offered.iter().find(|offered| *offered == chosen) {
                Some(offered) => Negotiated::Protocol(offered),
                None => Negotiated::NotOffered,
            },
            // Without the echo browsers reject the handshake.
            None => self.bearer.as_deref().map_or(Negotiated::None, Negotiated::Protocol),
        }
    }
}
