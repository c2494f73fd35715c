//! `store.url`: which servers, and how to reach them.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize, Serializer};

use crate::config::redact::redacted;
use crate::domain::secret::Secret;

const FORMS: &str = "use \"embedded\", \"redis://HOST:PORT\", \"rediss://HOST:PORT\" (TLS), \"redis+unix:///PATH\", \
                     \"redis+sentinel://HOST:PORT,HOST:PORT/NAME\" or \"redis+cluster://HOST:PORT,HOST:PORT\"";

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// The value of `store.url`. It is never printed with its password.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct StoreUrl(String);

impl Default for StoreUrl {
    fn default() -> Self {
        Self::new("embedded")
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redacted(&self.0))
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", redacted(&self.0))
    }
}

impl Serialize for StoreUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What `store.url` means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreTarget {
    /// A file of this gateway.
    Embedded,
    /// Redis servers, which other gateways may use too.
    Redis(RedisAddress),
}

/// Redis servers and how to sign in there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisAddress {
    /// Where they are.
    pub layout: RedisLayout,
    /// Whether connections are encrypted.
    pub tls: RedisTls,
    /// The ACL user; `None` is the servers' default one.
    pub username: Option<String>,
    /// The password of the URL.
    pub password: Option<Secret<String>>,
    /// The number of the database.
    pub database: i64,
}

/// Whether connections are encrypted. The servers' certificates are always verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedisTls {
    /// TLS.
    On,
    /// Plain text.
    Off,
}

/// How the servers are arranged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisLayout {
    /// One server.
    Single(RedisHost),
    /// One server on this machine.
    Unix(PathBuf),
    /// A primary that Sentinels know by its name.
    Sentinel {
        /// The Sentinels.
        hosts: Vec<RedisHost>,
        /// The primary's name.
        name: String,
    },
    /// A cluster that some of its members are known of.
    Cluster(Vec<RedisHost>),
}

/// The address of one server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RedisHost {
    /// Name or IP address.
    pub name: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for RedisHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

impl RedisHost {
    /// Parses `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT`.
    fn parse(text: &str, default_port: u16) -> Option<Self> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (name, port) = rest.split_once(']')?;
                (name, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
            }
            None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
        };
        let port = port.map_or(Some(default_port), |port| port.parse().ok().filter(|port| *port != 0))?;
        let is_name =
            !name.is_empty() && !name.contains(|letter: char| letter.is_whitespace() || "/?#@,[]".contains(letter));
        is_name.then(|| Self { name: name.to_owned(), port })
    }

    fn parse_list(text: &str, default_port: u16) -> Option<Vec<Self>> {
        text.split(',').map(|host| Self::parse(host, default_port)).collect()
    }
}

impl StoreUrl {
    /// Wraps the text without checking it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// What the URL means, or why it means nothing.
    pub fn target(&self) -> Result<StoreTarget, String> {
        if self.0 == "embedded" {
            return Ok(StoreTarget::Embedded);
        }
        let unsupported = || format!("{self:?} is not supported; {FORMS}");
        let (scheme, rest) = self.0.split_once("://").ok_or_else(unsupported)?;
        let (tls, kind) = match scheme.strip_prefix("rediss").map(|kind| (RedisTls::On, kind)) {
            Some(encrypted) => encrypted,
            None => (RedisTls::Off, scheme.strip_prefix("redis").ok_or_else(unsupported)?),
        };
        // A password may contain '/' and ',' unescaped, hosts may not contain '@'.
        let (credentials, servers) =
            rest.rsplit_once('@').map_or((None, rest), |(before, after)| (Some(before), after));
        let (username, password) = credentials.map_or(Ok((None, None)), sign_in)?;
        let (hosts, path) = servers.split_once('/').unwrap_or((servers, ""));
        let malformed = |form: &str| format!("{self:?} is malformed; its form is \"{scheme}://{form}\"");
        let (layout, database) = match (kind, tls) {
            ("", _) => {
                let malformed = || malformed("HOST:PORT/DATABASE");
                let host = RedisHost::parse(hosts, DEFAULT_PORT).ok_or_else(malformed)?;
                let database = if path.is_empty() { 0 } else { path.parse::<u16>().map_err(|_| malformed())? };
                (RedisLayout::Single(host), database.into())
            }
            ("+unix", RedisTls::Off) if hosts.is_empty() && !path.is_empty() => {
                (RedisLayout::Unix(PathBuf::from(format!("/{path}"))), 0)
            }
            ("+unix", RedisTls::Off) => return Err(malformed("/PATH")),
            ("+sentinel", _) => {
                let hosts = RedisHost::parse_list(hosts, DEFAULT_SENTINEL_PORT).filter(|_| is_primary_name(path));
                let hosts = hosts.ok_or_else(|| malformed("HOST:PORT,HOST:PORT/NAME"))?;
                (RedisLayout::Sentinel { hosts, name: path.to_owned() }, 0)
            }
            ("+cluster", _) => {
                let hosts = RedisHost::parse_list(hosts, DEFAULT_PORT).filter(|_| path.is_empty());
                (RedisLayout::Cluster(hosts.ok_or_else(|| malformed("HOST:PORT,HOST:PORT"))?), 0)
            }
            _ => return Err(unsupported()),
        };
        Ok(StoreTarget::Redis(RedisAddress { layout, tls, username, password, database }))
    }
}

fn is_primary_name(path: &str) -> bool {
    !path.is_empty() && path.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.'))
}

type SignIn = (Option<String>, Option<Secret<String>>);

/// `USER:PASSWORD`, `:PASSWORD` or `USER`, each percent-encoded.
fn sign_in(credentials: &str) -> Result<SignIn, String> {
    let (username, password) =
        credentials.split_once(':').map_or((credentials, None), |(user, word)| (user, Some(word)));
    let decode = |text: &str| match percent_decode_str(text).decode_utf8() {
        Ok(decoded) => Ok(decoded.into_owned()),
        Err(_) => Err("user name or password is not UTF-8 after percent-decoding".to_owned()),
    };
    let username = Some(username).filter(|name| !name.is_empty()).map(decode).transpose()?;
    let password = password.filter(|word| !word.is_empty()).map(decode).transpose()?;
    Ok((username, password.map(Secret::new)))
}

#[cfg(test)]
mod tests;
