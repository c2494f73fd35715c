//! The hosts under which the gateway answers. A page of another name that resolves to the gateway's address (DNS rebinding)
//! is told apart from the gateway's own by its `Host`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::byte_set::ByteSet;

/// The host and port of a `Host` header or an `:authority`. Borrowed, so that a comparison copies nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHost<'a> {
    text: &'a str,
    name: HostKind<'a>,
    port: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostKind<'a> {
    /// A name without its final dot.
    Name(&'a str),
    Address(IpAddr),
}

impl<'a> RequestHost<'a> {
    /// Parses a name or an address with an optional port; `None` if it is neither.
    pub fn parse(host: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(host).ok()?;
        let (name, port) = match text.strip_prefix('[') {
            Some(bracketed) => {
                let (address, port) = bracketed.split_once(']')?;
                (HostKind::Address(IpAddr::V6(address.parse::<Ipv6Addr>().ok()?).to_canonical()), port)
            }
            None => {
                let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
                (HostKind::parse(name)?, port)
            }
        };
        let port = match port.strip_prefix(':') {
            Some(digits) => Some(parse_port(digits)?),
            None if port.is_empty() => None,
            None => return None,
        };
        Some(Self { text, name, port })
    }

    /// The host as the client sent it.
    pub fn as_str(&self) -> &'a str {
        self.text
    }

    /// The bytes of [`as_str`](Self::as_str).
    pub fn as_bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    /// Whether it is a name or an address of this machine, which no other machine's name can be.
    pub fn is_loopback(&self) -> bool {
        match self.name {
            HostKind::Address(address) => address.is_loopback(),
            HostKind::Name(name) => name.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case("localhost")),
        }
    }
}

/// The bytes of a name or of an IPv4 address.
static NAME_BYTES: ByteSet = ByteSet::alphanumeric_and(b".-_");

impl<'a> HostKind<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        let bare = name.strip_suffix('.').unwrap_or(name);
        if bare.is_empty() || !NAME_BYTES.contains_all(bare) {
            return None;
        }
        Some(match bare.parse::<Ipv4Addr>() {
            Ok(address) => HostKind::Address(address.into()),
            Err(_) => HostKind::Name(bare),
        })
    }
}

fn parse_port(digits: &str) -> Option<u16> {
    let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?;
    number.filter(|port| *port > 0)
}

/// An entry of `server.hosts`. One without a port stands for every port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEntry {
    text: Box<str>,
    name: EntryKind,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum EntryKind {
    Name(Box<str>),
    Address(IpAddr),
}

impl HostEntry {
    fn allows(&self, host: &RequestHost<'_>) -> bool {
        let is_same = match (&self.name, host.name) {
            (EntryKind::Name(own), HostKind::Name(name)) => own.eq_ignore_ascii_case(name),
            (EntryKind::Address(own), HostKind::Address(address)) => *own == address,
            _ => false,
        };
        is_same && (self.port.is_none() || self.port == host.port)
    }

    /// A host that is written exactly like this entry, with any port if the entry has none.
    fn same_text<'a>(&self, host: &'a [u8]) -> Option<RequestHost<'a>> {
        let port = match host.strip_prefix(self.text.as_bytes())? {
            [] => self.port,
            [b':', digits @ ..] if self.port.is_none() => Some(parse_port(std::str::from_utf8(digits).ok()?)?),
            _ => return None,
        };
        let text = std::str::from_utf8(host).ok()?;
        let name = match &self.name {
            EntryKind::Name(name) => HostKind::Name(&text[..name.len()]),
            EntryKind::Address(address) => HostKind::Address(*address),
        };
        Some(RequestHost { text, name, port })
    }

    /// The name or address as it stands in a URL, without the port.
    pub fn without_port(&self) -> &str {
        let port = self.port.and_then(|_| self.text.rfind(':'));
        &self.text[..port.unwrap_or(self.text.len())]
    }
}

/// The text is not a host.
#[derive(Debug, thiserror::Error)]
#[error("not a host name or an address with an optional port")]
pub struct InvalidHost;

impl FromStr for HostEntry {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        let RequestHost { name, port, .. } = RequestHost::parse(text.as_bytes()).ok_or(InvalidHost)?;
        let name = match name {
            HostKind::Name(name) => EntryKind::Name(name.into()),
            HostKind::Address(address) => EntryKind::Address(address),
        };
        Ok(Self { text: text.into(), name, port })
    }
}

impl fmt::Display for HostEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for HostEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// The hosts that a request may name.
#[derive(Debug, Clone)]
pub struct AllowedHosts {
    /// The named ones.
    pub entries: Vec<HostEntry>,
    /// Whether the names and addresses of this machine are allowed, too.
    pub loopback: LoopbackHosts,
}

/// Whether loopback names and addresses are allowed beside the named hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopbackHosts {
    /// They are: development mode.
    Allowed,
    /// Only if they are named.
    NotAllowed,
}

impl AllowedHosts {
    /// Loopback alone.
    pub const LOOPBACK: Self = Self { entries: Vec::new(), loopback: LoopbackHosts::Allowed };

    /// The same as [`RequestHost::parse`]. Nearly every request names a host as an entry has it, which then has been parsed already.
    pub fn parse<'a>(&self, host: &'a [u8]) -> Option<RequestHost<'a>> {
        self.entries.iter().find_map(|entry| entry.same_text(host)).or_else(|| RequestHost::parse(host))
    }

    /// Whether a request may name this host. One that names none is refused.
    pub fn allows(&self, host: Option<&RequestHost<'_>>) -> bool {
        host.is_some_and(|host| {
            self.entry(host).is_some() || (self.loopback == LoopbackHosts::Allowed && host.is_loopback())
        })
    }

    /// The entry that allows a host.
    pub fn entry(&self, host: &RequestHost<'_>) -> Option<&HostEntry> {
        self.entries.iter().find(|entry| entry.allows(host))
    }
}

#[cfg(test)]
mod tests;
