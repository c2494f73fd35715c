//! An entry of `addresses`: `"10.0.0.2:8000"`, or `{ address = "10.0.0.2:8000", weight = 2 }`.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

/// What an address is and an example of each kind.
const FORM: &str = "an address such as \"10.0.0.2:8000\", a name such as \"desk.internal:8000\" or a Unix socket such as \"unix:/run/desk.sock\"";

/// The most bytes of a Unix socket's path; the system has room for one more.
const LONGEST_SOCKET_PATH: usize = 107;

/// Where an upstream listens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum UpstreamAddress {
    /// An IP address with a port.
    Socket(SocketAddr),
    /// A DNS name with a port. All addresses of the name are used.
    Name {
        /// The name.
        host: String,
        /// The port.
        port: u16,
    },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl UpstreamAddress {
    /// The host that a certificate at this address has, unless the configuration names another.
    pub fn host(&self) -> String {
        match self {
            Self::Socket(address) => address.ip().to_string(),
            Self::Name { host, .. } => host.trim_end_matches('.').to_owned(),
            Self::Unix(_) => "localhost".to_owned(),
        }
    }
}

impl FromStr for UpstreamAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || format!("{text:?} is not {FORM}");
        if let Some(path) = text.strip_prefix("unix:") {
            let is_valid = Path::new(path).is_absolute() && path.len() <= LONGEST_SOCKET_PATH && !path.contains('\0');
            return if is_valid { Ok(Self::Unix(path.into())) } else { Err(malformed()) };
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Socket(address));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(malformed)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(malformed)?;
        if is_host_name(host) { Ok(Self::Name { host: host.to_owned(), port }) } else { Err(malformed()) }
    }
}

/// Whether this is a DNS name. A last label of digits makes it a mistyped IP address.
fn is_host_name(host: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && label.len() <= 63 && label.bytes().all(is_inner)
    };
    let name = host.strip_suffix('.').unwrap_or(host);
    let last = name.rsplit('.').next().unwrap_or_default();
    host.len() <= 253 && name.split('.').all(is_label) && !last.bytes().all(|byte| byte.is_ascii_digit())
}

impl fmt::Display for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// An address of an upstream, with its share of the requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightedAddress {
    /// The address.
    pub address: UpstreamAddress,
    /// Its share, relative to the weights of the other addresses. Each address of a name has it.
    pub weight: u32,
}

impl WeightedAddress {
    const DEFAULT_WEIGHT: u32 = 1;
}

impl From<SocketAddr> for WeightedAddress {
    fn from(address: SocketAddr) -> Self {
        Self { address: UpstreamAddress::Socket(address), weight: Self::DEFAULT_WEIGHT }
    }
}

impl FromStr for WeightedAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self { address: text.parse()?, weight: Self::DEFAULT_WEIGHT })
    }
}

impl Serialize for WeightedAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.weight == Self::DEFAULT_WEIGHT {
            return serializer.collect_str(&self.address);
        }
        let mut table = serializer.serialize_map(Some(2))?;
        table.serialize_entry("address", &self.address.to_string())?;
        table.serialize_entry("weight", &self.weight)?;
        table.end()
    }
}

impl<'de> Deserialize<'de> for WeightedAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AddressVisitor)
    }
}

struct AddressVisitor;

impl<'de> Visitor<'de> for AddressVisitor {
    type Value = WeightedAddress;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FORM}, or a table with `address` and `weight`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<WeightedAddress, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<WeightedAddress, A::Error> {
        let entry = AddressTable::deserialize(de::value::MapAccessDeserializer::new(table))?;
        Ok(WeightedAddress { address: entry.address.parse().map_err(de::Error::custom)?, weight: entry.weight })
    }
}

/// `{ address = "10.0.0.2:8000", weight = 2 }`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddressTable {
    address: String,
    #[serde(default = "default_weight")]
    weight: u32,
}

fn default_weight() -> u32 {
    WeightedAddress::DEFAULT_WEIGHT
}
