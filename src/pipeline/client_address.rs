//! Finds the client's address behind trusted proxies. `networks`, rates, logs and the development routes all use this one
//! address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::forwarded::{self, Node};
use super::head::{Fields, ListField};
use crate::config::{ClientAddress, ForwardedHeaders};
use crate::error::{BadRequest, Error};

/// The longest `X-Forwarded-For`, in bytes: some twenty IPv6 addresses with ports. Bounds the cost of parsing it.
const LONGEST: usize = 1024;

/// The longest `Forwarded`, whose elements say more.
const LONGEST_FORWARDED: usize = 2048;

/// The proxies in front of the gateway, and where in their headers the client stands.
#[derive(Debug, Clone)]
pub struct TrustedProxies {
    /// Peers whose headers are trusted.
    pub networks: Vec<IpNet>,
    /// Which header names the client, and which ones upstreams get. No other one is read.
    pub forwarded: ForwardedHeaders,
    /// Which address of the list is the client's.
    pub client_address: ClientAddress,
}

impl TrustedProxies {
    /// Trusts no peer: every client is its own peer.
    pub const NONE: Self =
        Self { networks: Vec::new(), forwarded: ForwardedHeaders::XForwarded, client_address: ClientAddress::First };

    /// Whether an address, in canonical form, is a trusted proxy's.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// Returns the client's address. The list of a trusted peer must be readable as a whole (1400): with an unreadable
    /// one the proxy would count as the client and pass the rules for its network. The list of any other peer is ignored.
    pub(super) fn client_of(&self, peer: IpAddr, fields: &Fields<'_>) -> Result<IpAddr, Error> {
        let (list, name, longest) = match self.forwarded {
            ForwardedHeaders::XForwarded | ForwardedHeaders::Both => {
                (&fields.forwarded_for, "X-Forwarded-For", LONGEST)
            }
            ForwardedHeaders::Rfc7239 => (&fields.forwarded, "Forwarded", LONGEST_FORWARDED),
        };
        if list.is_absent() || !self.contains(peer) {
            return Ok(peer);
        }
        if list.bytes() > longest {
            return Err(BadRequest::ForwardedForLength(name).into());
        }
        self.chosen_from(list).ok_or_else(|| BadRequest::ForwardedForEntry(name).into())
    }

    /// `None` if the list cannot be read, if it has no element, or if the client's address is hidden.
    fn chosen_from(&self, list: &ListField<'_>) -> Option<IpAddr> {
        match self.forwarded {
            ForwardedHeaders::XForwarded | ForwardedHeaders::Both => {
                self.choose(list.elements().map(|element| parse(element).map(Node::Address)))
            }
            ForwardedHeaders::Rfc7239 => self.choose(forwarded::nodes(list)?.into_iter().map(Some)),
        }
    }

    fn choose(&self, nodes: impl Iterator<Item = Option<Node>>) -> Option<IpAddr> {
        let (mut first, mut rightmost) = (None, None);
        for node in nodes {
            let node = node?;
            first = first.or(Some(node));
            if !matches!(node, Node::Address(address) if self.contains(address)) {
                rightmost = Some(node);
            }
        }
        let chosen = match self.client_address {
            ClientAddress::First => first,
            // A list of trusted proxies alone comes from the first of them.
            ClientAddress::Rightmost => rightmost.or(first),
        };
        match chosen? {
            Node::Address(address) => Some(address),
            Node::Hidden => None,
        }
    }
}

/// Reads one element of `X-Forwarded-For`: an address, which load balancers write bare, in brackets or with a port. Names and the obfuscated
/// identifiers of RFC 7239 are no addresses.
fn parse(element: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(element).ok()?;
    let address = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (address, port) = bracketed.split_once(']')?;
            if !port.is_empty() {
                parse_port(port.strip_prefix(':')?)?;
            }
            IpAddr::V6(address.parse::<Ipv6Addr>().ok()?)
        }
        None => match text.split_once(':') {
            Some((address, port)) if !port.contains(':') => {
                parse_port(port)?;
                IpAddr::V4(address.parse::<Ipv4Addr>().ok()?)
            }
            _ => text.parse().ok()?,
        },
    };
    Some(address.to_canonical())
}

/// `u16::from_str` alone would accept a sign.
fn parse_port(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
