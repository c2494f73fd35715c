//! `[directory]`: where employees, roles and the logs are stored.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize, Serializer};

use super::redact::redacted;
use super::{Faults, HumanDuration};
use crate::domain::employee::EmployeeSource;
use crate::domain::postgres_url::PostgresUrl;
use crate::domain::role::RoleName;
use crate::domain::secret::Secret;

/// `[directory]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DirectoryConfig {
    /// `sqlite:FILE`, relative to `server.data_dir`, or `postgres://user@host:port/database`.
    pub url: DatabaseUrl,
    /// PostgreSQL: file with the user's password.
    pub password_file: PathBuf,
    /// PostgreSQL: certificates of the authorities that may sign the server's, beside the public ones.
    pub ca_file: PathBuf,
    /// PostgreSQL: the maximum number of connections.
    pub pool: u32,
    /// PostgreSQL: how long an operation may take, with the wait for a connection; then 1503.
    pub timeout: HumanDuration,
    /// `own`, or `views`: employees, roles and agents are read from views over the help desk's tables (PostgreSQL).
    pub employees: EmployeeSource,
    /// Role of employees who have no agent record and were never assigned a role; if empty, they cannot sign in (1003).
    pub default_role: String,
    /// Retention of the login log and the audit log.
    pub login_log: HumanDuration,
}

/// The URL of a database. User and password show neither in `Debug` nor in the serialised form.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct DatabaseUrl(String);

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&redacted(&self.0), f)
    }
}

impl Serialize for DatabaseUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&redacted(&self.0))
    }
}

impl Default for DirectoryConfig {
    fn default() -> Self {
        Self {
            url: DatabaseUrl("sqlite:directory.db".to_owned()),
            password_file: PathBuf::new(),
            ca_file: PathBuf::new(),
            pool: 10,
            timeout: HumanDuration::seconds(2),
            employees: EmployeeSource::Own,
            default_role: "user".to_owned(),
            login_log: HumanDuration::seconds(180 * 86_400),
        }
    }
}

impl DirectoryConfig {
    /// The SQLite file, relative to `server.data_dir`; `None` for a server.
    pub fn file(&self) -> Option<PathBuf> {
        self.url.0.strip_prefix("sqlite:").filter(|file| !file.is_empty()).map(PathBuf::from)
    }

    /// The PostgreSQL database without the password of `password_file`; `None` for a file.
    pub fn server(&self) -> Option<PostgresUrl> {
        PostgresUrl::parse(&self.url.0).ok()
    }

    /// Whether several gateways can use it at the same time.
    pub fn is_shared(&self) -> bool {
        self.file().is_none()
    }

    /// The password in `password_file`, if that is set.
    pub fn read_password(&self) -> std::io::Result<Option<Secret<String>>> {
        if self.password_file.as_os_str().is_empty() {
            return Ok(None);
        }
        let password = std::fs::read_to_string(&self.password_file)?;
        Ok(Some(Secret::new(password.trim_end_matches(['\r', '\n']).to_owned())))
    }

    /// The default role, if one is set.
    pub fn fallback_role(&self) -> Option<RoleName> {
        (!self.default_role.is_empty()).then(|| RoleName::new(self.default_role.as_str()))
    }

    pub(super) fn check(&self, faults: &mut Faults) {
        self.check_url(faults);
        if self.employees == EmployeeSource::Views && self.file().is_some() {
            faults.add("directory.employees", "\"views\" requires a directory.url of the form \"postgres://…\"");
        }
        if !(1..=1000).contains(&self.pool) {
            faults.add("directory.pool", format!("{} is out of range; use 1 to 1000", self.pool));
        }
        if !(HumanDuration::millis(100)..=HumanDuration::seconds(60)).contains(&self.timeout) {
            faults.add("directory.timeout", format!("\"{}\" is out of range; use \"100ms\" to \"1m\"", self.timeout));
        }
        if self.login_log < HumanDuration::seconds(3600) {
            faults.add("directory.login_log", format!("\"{}\" is too short; use at least \"1h\"", self.login_log));
        }
        if !self.default_role.is_empty() && !RoleName::is_well_formed(&self.default_role) {
            faults.add("directory.default_role", format!("{:?} is not a valid role name", self.default_role));
        }
    }

    fn check_url(&self, faults: &mut Faults) {
        if self.file().is_some() {
            return;
        }
        if !PostgresUrl::is_one(&self.url.0) {
            let why = format!("{:?} is not supported; use \"sqlite:FILE\" or \"postgres://…\"", self.url);
            return faults.add("directory.url", why);
        }
        let has_password = match PostgresUrl::parse(&self.url.0) {
            Ok(url) => url.password.is_some(),
            Err(why) => return faults.add("directory.url", why),
        };
        if has_password && !self.password_file.as_os_str().is_empty() {
            faults.add("directory.password_file", "set either a password in directory.url or password_file, not both");
        }
        for (key, file) in [("directory.password_file", &self.password_file), ("directory.ca_file", &self.ca_file)] {
            if file.as_os_str().is_empty() {
                continue;
            }
            if let Err(error) = std::fs::File::open(file) {
                faults.add(key, format!("{file:?} cannot be read: {error}"));
            }
        }
    }
}
