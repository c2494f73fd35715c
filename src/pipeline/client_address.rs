//! Finds the client's address behind trusted proxies. `networks`, rates, logs and the development routes all use this one
//! address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::head::ListField;
use crate::config::ClientAddress;
use crate::error::{BadRequest, Error};

/// The longest `X-Forwarded-For`, in bytes: some twenty IPv6 addresses with ports. Bounds the cost of parsing it.
const LONGEST: usize = 1024;

/// The proxies in front of the gateway, and where in their `X-Forwarded-For` the client stands.
#[derive(Debug, Clone)]
pub struct TrustedProxies {
    /// Peers whose `X-Forwarded-For` and `X-Request-Id` are trusted.
    pub networks: Vec<IpNet>,
    /// Which address of the list is the client's.
    pub client_address: ClientAddress,
}

impl TrustedProxies {
    /// Trusts no peer: every client is its own peer.
    pub const NONE: Self = Self { networks: Vec::new(), client_address: ClientAddress::First };

    /// Whether an address, in canonical form, is a trusted proxy's.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// Returns the client's address. The list of a trusted peer must be readable as a whole (1400): with an unreadable
    /// one the proxy would count as the client and pass the rules for its network. The list of any other peer is ignored.
    pub(super) fn client_of(&self, peer: IpAddr, forwarded_for: &ListField<'_>) -> Result<IpAddr, Error> {
        if forwarded_for.is_absent() || !self.contains(peer) {
            return Ok(peer);
        }
        if forwarded_for.bytes() > LONGEST {
            return Err(BadRequest::ForwardedForLength.into());
        }
        self.chosen_from(forwarded_for).ok_or_else(|| BadRequest::ForwardedForEntry.into())
    }

    /// `None` if an element is no address, or if the list has no element.
    fn chosen_from(&self, forwarded_for: &ListField<'_>) -> Option<IpAddr> {
        let (mut first, mut rightmost) = (None, None);
        for element in forwarded_for.elements() {
            let address = parse(element)?;
            first = first.or(Some(address));
            if !self.contains(address) {
                rightmost = Some(address);
            }
        }
        match self.client_address {
            ClientAddress::First => first,
            // A list of trusted proxies alone comes from the first of them.
            ClientAddress::Rightmost => rightmost.or(first),
        }
    }
}

/// Reads one element: an address, which load balancers write bare, in brackets or with a port. Names and the obfuscated
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
