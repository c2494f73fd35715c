//! `postgres://user:password@host:port/database?sslmode=…`: where a PostgreSQL database is.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use url::Url;

use super::secret::Secret;

/// A PostgreSQL database and how to connect to it. `Display` leaves user and password out.
#[derive(Debug, Clone)]
pub struct PostgresUrl {
    /// The server.
    pub host: PostgresHost,
    /// Its port; for a socket, the number in the socket's name.
    pub port: u16,
    /// The database on the server.
    pub database: String,
    /// The database user.
    pub user: String,
    /// The user's password, if the URL has one.
    pub password: Option<Secret<String>>,
    /// Whether and how the server's certificate is checked.
    pub ssl_mode: SslMode,
}

/// A PostgreSQL server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostgresHost {
    /// A host name or IP address.
    Name(String),
    /// The folder of a Unix socket.
    Socket(PathBuf),
}

/// Whether connections are encrypted and how the server's certificate is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SslMode {
    /// Not encrypted.
    Disable,
    /// Encrypted; any certificate is accepted.
    Require,
    /// Encrypted; the certificate comes from a trusted authority.
    VerifyCa,
    /// Encrypted; the certificate comes from a trusted authority and names the host.
    VerifyFull,
}

impl PostgresHost {
    /// Whether connections to it do not leave this machine.
    pub fn is_local(&self) -> bool {
        match self {
            PostgresHost::Socket(_) => true,
            PostgresHost::Name(name) => {
                name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }
}

impl SslMode {
    /// `prefer` and `allow` are missing: an attacker in the server's place would choose not to encrypt.
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "disable" => SslMode::Disable,
            "require" => SslMode::Require,
            "verify-ca" => SslMode::VerifyCa,
            "verify-full" => SslMode::VerifyFull,
            _ => return None,
        })
    }
}

impl PostgresUrl {
    const PORT: u16 = 5432;

    /// Whether a text is meant as such a URL.
    pub fn is_one(text: &str) -> bool {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    /// Reads a URL. The error says what is wrong and shows nothing of the URL.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "not a URL of the form postgres://user@host:port/database";
        let url = Url::parse(text).map_err(|_| FORM)?;
        if !Self::is_one(text) {
            return Err(FORM.to_owned());
        }
        let (socket, ssl_mode) = parameters(&url)?;
        let host = match socket {
            Some(folder) => PostgresHost::Socket(folder),
            None => host_of(&url)?,
        };
        let default_mode = if host.is_local() { SslMode::Disable } else { SslMode::VerifyFull };
        let named = |part: &str, what: &str| match decoded(part) {
            Some(name) if !name.is_empty() => Ok(name),
            _ => Err(format!("the {what} is missing; the form is postgres://user@host:port/database")),
        };
        Ok(Self {
            port: url.port().unwrap_or(Self::PORT),
            database: named(url.path().trim_start_matches('/'), "database")?,
            user: named(url.username(), "user")?,
            password: url.password().and_then(decoded).map(Secret::new),
            ssl_mode: ssl_mode.unwrap_or(default_mode),
            host,
        })
    }
}

/// The folder of the socket and the TLS mode, if the URL's query has them.
fn parameters(url: &Url) -> Result<(Option<PathBuf>, Option<SslMode>), String> {
    const MODES: &str = "use \"verify-full\", \"verify-ca\", \"require\" or \"disable\"";
    let (mut socket, mut ssl_mode) = (None, None);
    for (key, value) in url.query_pairs() {
        match &*key {
            "sslmode" => {
                ssl_mode = Some(SslMode::parse(&value).ok_or_else(|| format!("unknown sslmode {value:?}; {MODES}"))?);
            }
            "host" if value.starts_with('/') => socket = Some(PathBuf::from(&*value)),
            "host" => return Err("the parameter `host` names the folder of a Unix socket only".to_owned()),
            _ => return Err(format!("unknown parameter {key:?}; there are `sslmode` and `host`")),
        }
    }
    Ok((socket, ssl_mode))
}

fn host_of(url: &Url) -> Result<PostgresHost, String> {
    let host = url.host_str().and_then(decoded).filter(|host| !host.is_empty()).ok_or("the host is missing")?;
    if host.starts_with('/') {
        return Ok(PostgresHost::Socket(host.into()));
    }
    if host.contains(',') {
        return Err("names several hosts; use one, such as the name that follows the primary".to_owned());
    }
    Ok(PostgresHost::Name(host.trim_start_matches('[').trim_end_matches(']').to_owned()))
}

fn decoded(part: &str) -> Option<String> {
    percent_decode_str(part).decode_utf8().ok().map(Into::into)
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            PostgresHost::Name(name) if name.contains(':') => {
                write!(f, "postgres://[{name}]:{}/{}", self.port, self.database)
            }
            PostgresHost::Name(name) => write!(f, "postgres://{name}:{}/{}", self.port, self.database),
            PostgresHost::Socket(folder) => {
                write!(f, "postgres:///{}?host={}&port={}", self.database, folder.display(), self.port)
            }
        }
    }
}

#[cfg(test)]
mod tests;
