//! Reads and writes `Forwarded` (RFC 7239): the nodes that a request has passed, as `for` parameters name them.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::head::ListField;

/// A node that a request has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Address(IpAddr),
    /// A proxy has hidden the address (`unknown`, or an identifier of its own), or does not mention it.
    Hidden,
}

/// The nodes in order. `None` if the header is malformed, or if it has no node.
pub(super) fn nodes(field: &ListField<'_>) -> Option<Vec<Node>> {
    let mut nodes = Vec::new();
    for line in field.lines() {
        let mut reader = Reader(line);
        while !reader.0.is_empty() {
            nodes.extend(reader.element()?);
        }
    }
    (!nodes.is_empty()).then_some(nodes)
}

/// What is left of a header line.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads an element and the comma behind it. Lists may have empty elements, which are no nodes.
    fn element(&mut self) -> Option<Option<Node>> {
        let (mut node, mut is_empty) = (None, true);
        loop {
            self.skip_spaces();
            if !matches!(self.0.first(), None | Some(b',' | b';')) {
                let (name, value) = self.parameter()?;
                is_empty = false;
                // No parameter may occur twice in an element.
                if name.eq_ignore_ascii_case(b"for") && node.replace(parse_node(&value)?).is_some() {
                    return None;
                }
                self.skip_spaces();
            }
            match self.take() {
                Some(b';') => {}
                None | Some(b',') => return Some((!is_empty).then(|| node.unwrap_or(Node::Hidden))),
                Some(_) => return None,
            }
        }
    }

    fn parameter(&mut self) -> Option<(&'a [u8], Cow<'a, [u8]>)> {
        let name = self.token()?;
        if self.take()? != b'=' {
            return None;
        }
        let value = match self.0.first() {
            Some(b'"') => self.quoted()?,
            _ => Cow::Borrowed(self.token()?),
        };
        Some((name, value))
    }

    fn token(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| !is_token(*byte)).unwrap_or(self.0.len());
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        (!token.is_empty()).then_some(token)
    }

    fn quoted(&mut self) -> Option<Cow<'a, [u8]>> {
        let mut value = Vec::new();
        self.take()?;
        loop {
            match self.take()? {
                b'"' => return Some(value.into()),
                b'\\' => value.push(self.take()?),
                byte => value.push(byte),
            }
        }
    }

    fn take(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn skip_spaces(&mut self) {
        self.0 = self.0.trim_ascii_start();
    }
}

/// Whether a byte may be in a token (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Reads a node: an address, IPv6 in brackets, `unknown` or an obfuscated identifier; each may have a port.
fn parse_node(value: &[u8]) -> Option<Node> {
    let text = std::str::from_utf8(value).ok()?;
    let (node, port) = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (address, port) = bracketed.split_once(']')?;
            let address = IpAddr::V6(address.parse::<Ipv6Addr>().ok()?);
            (Node::Address(address.to_canonical()), port)
        }
        None => {
            let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            let is_hidden = name.eq_ignore_ascii_case("unknown") || is_obfuscated(name);
            let node = if is_hidden { Node::Hidden } else { Node::Address(name.parse::<Ipv4Addr>().ok()?.into()) };
            (node, port)
        }
    };
    match port.strip_prefix(':') {
        Some(port) if is_port(port) => Some(node),
        None if port.is_empty() => Some(node),
        _ => None,
    }
}

fn is_port(text: &str) -> bool {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok();
    is_number || is_obfuscated(text)
}

fn is_obfuscated(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    text.strip_prefix('_').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_allowed))
}

/// The value for an upstream: the client with the host and scheme of its request, then the proxy in front of the gateway.
pub(super) fn value(client: IpAddr, peer: IpAddr, host: &[u8], scheme: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(128);
    write_node(&mut value, client);
    value.extend_from_slice(b";host=\"");
    for byte in host {
        if matches!(byte, b'"' | b'\\') {
            value.push(b'\\');
        }
        value.push(*byte);
    }
    value.extend_from_slice(b"\";proto=");
    value.extend_from_slice(scheme);
    if peer != client {
        value.extend_from_slice(b", ");
        write_node(&mut value, peer);
    }
    value
}

fn write_node(value: &mut Vec<u8>, address: IpAddr) {
    let node = match address {
        IpAddr::V4(address) => format!("for={address}"),
        IpAddr::V6(address) => format!("for=\"[{address}]\""),
    };
    value.extend_from_slice(node.as_bytes());
}

#[cfg(test)]
mod tests;
