//! Reads the header of the PROXY protocol, versions 1 and 2, with which a load balancer names the client of a connection
//! (HAProxy, doc/proxy-protocol.txt). Whom to believe is left to `accept`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest line of version 1, with its end.
const LONGEST_LINE: usize = 107;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Version 2 begins with the signature, the version and command, the address family, and the length of what follows.
const FIXED: usize = 16;

/// The most bytes behind the fixed part of version 2: addresses, and vendors' extensions, which are ignored.
const LONGEST_REST: usize = 4096;

/// What a header says about the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProxiedClient {
    Address(SocketAddr),
    /// The connection is the load balancer's own, such as a health check.
    LoadBalancer,
    /// The client has no address, or none that the load balancer can express.
    Unnamed,
}

/// A header and the number of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    client: ProxiedClient,
    length: usize,
}

/// No header of the PROXY protocol.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidHeader;

impl From<io::Error> for InvalidHeader {
    fn from(_: io::Error) -> Self {
        Self
    }
}

/// Reads the header at the beginning of a connection. Returns what was read behind it, too.
pub(super) async fn read(connection: &mut (impl AsyncRead + Unpin)) -> Result<(ProxiedClient, Vec<u8>), InvalidHeader> {
    let mut bytes = Vec::with_capacity(LONGEST_LINE);
    loop {
        if let Some(Header { client, length }) = parse(&bytes)? {
            return Ok((client, bytes.split_off(length)));
        }
        if connection.read_buf(&mut bytes).await? == 0 {
            return Err(InvalidHeader);
        }
    }
}

/// Parses what has been read so far; `None` if that is the beginning of a header.
fn parse(bytes: &[u8]) -> Result<Option<Header>, InvalidHeader> {
    let compared = bytes.len().min(SIGNATURE.len());
    if bytes[..compared] == SIGNATURE[..compared] { parse_binary(bytes) } else { parse_line(bytes) }
}

/// Version 1: `PROXY TCP4 192.0.2.1 192.0.2.2 4711 443`, or `PROXY UNKNOWN` and anything.
fn parse_line(bytes: &[u8]) -> Result<Option<Header>, InvalidHeader> {
    const START: &[u8] = b"PROXY ";
    let compared = bytes.len().min(START.len());
    if bytes[..compared] != START[..compared] {
        return Err(InvalidHeader);
    }
    let searched = &bytes[..bytes.len().min(LONGEST_LINE)];
    let Some(end) = memchr::memmem::find(searched, b"\r\n") else {
        return if bytes.len() < LONGEST_LINE { Ok(None) } else { Err(InvalidHeader) };
    };
    let line = std::str::from_utf8(&bytes[START.len()..end]).map_err(|_| InvalidHeader)?;
    let client = match line.split_once(' ').unwrap_or((line, "")) {
        ("UNKNOWN", _) => ProxiedClient::Unnamed,
        ("TCP4", addresses) => parse_addresses::<Ipv4Addr>(addresses)?,
        ("TCP6", addresses) => parse_addresses::<Ipv6Addr>(addresses)?,
        _ => return Err(InvalidHeader),
    };
    Ok(Some(Header { client, length: end + 2 }))
}

/// Source and destination address, source and destination port, one space between them.
fn parse_addresses<A>(text: &str) -> Result<ProxiedClient, InvalidHeader>
where
    A: std::str::FromStr + Into<IpAddr>,
{
    let parts: Vec<&str> = text.split(' ').collect();
    let [source, destination, source_port, destination_port] = parts[..] else { return Err(InvalidHeader) };
    let address = |text: &str| text.parse::<A>().map_err(|_| InvalidHeader);
    address(destination)?;
    parse_port(destination_port)?;
    Ok(ProxiedClient::Address(SocketAddr::new(address(source)?.into(), parse_port(source_port)?)))
}

/// A port in decimal, without a sign and without leading zeros.
fn parse_port(text: &str) -> Result<u16, InvalidHeader> {
    let is_canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_canonical).ok_or(InvalidHeader)
}

fn parse_binary(bytes: &[u8]) -> Result<Option<Header>, InvalidHeader> {
    const LOCAL: u8 = 0x20;
    const PROXY: u8 = 0x21;
    let Some((fixed, rest)) = bytes.split_at_checked(FIXED) else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if !matches!(fixed[12], LOCAL | PROXY) || length > LONGEST_REST {
        return Err(InvalidHeader);
    }
    let Some(rest) = rest.get(..length) else { return Ok(None) };
    let client = match fixed[12] {
        LOCAL => ProxiedClient::LoadBalancer,
        _ => binary_client(fixed[13], rest)?,
    };
    Ok(Some(Header { client, length: FIXED + length }))
}

/// The source of version 2. Datagrams do not come over TCP.
fn binary_client(family: u8, rest: &[u8]) -> Result<ProxiedClient, InvalidHeader> {
    const UNSPECIFIED: u8 = 0x00;
    const TCP4: u8 = 0x11;
    const TCP6: u8 = 0x21;
    const UNIX_STREAM: u8 = 0x31;
    const UNIX_PATHS: usize = 2 * 108;
    match family {
        UNSPECIFIED => Ok(ProxiedClient::Unnamed),
        TCP4 => {
            let [a, b, c, d, _, _, _, _, high, low, _, _] = *rest.first_chunk::<12>().ok_or(InvalidHeader)?;
            let port = u16::from_be_bytes([high, low]);
            Ok(ProxiedClient::Address(SocketAddr::from(([a, b, c, d], port))))
        }
        TCP6 => {
            let addresses = rest.first_chunk::<36>().ok_or(InvalidHeader)?;
            let source = addresses.first_chunk::<16>().ok_or(InvalidHeader)?;
            let port = u16::from_be_bytes([addresses[32], addresses[33]]);
            Ok(ProxiedClient::Address(SocketAddr::from((*source, port))))
        }
        UNIX_STREAM if rest.len() >= UNIX_PATHS => Ok(ProxiedClient::Unnamed),
        _ => Err(InvalidHeader),
    }
}

#[cfg(test)]
mod tests;
