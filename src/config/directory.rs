//! `[directory]`: where employees, roles and the logs are stored.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::values::without_credentials;
use super::{Faults, HumanDuration};
use crate::domain::role::RoleName;

/// `[directory]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DirectoryConfig {
    /// `sqlite:FILE`, relative to `server.data_dir`.
    pub url: String,
    /// Role of employees who have no agent record and were never assigned a role; if empty, they cannot sign in (1003).
    pub default_role: String,
    /// Retention of the login log and the audit log.
    pub login_log: HumanDuration,
}

impl Default for DirectoryConfig {
    fn default() -> Self {
        let login_log = HumanDuration::seconds(180 * 86_400);
        Self { url: "sqlite:directory.db".to_owned(), default_role: "user".to_owned(), login_log }
    }
}

impl DirectoryConfig {
    /// The database file, relative to `server.data_dir`.
    pub fn file(&self) -> Option<PathBuf> {
        self.url.strip_prefix("sqlite:").filter(|file| !file.is_empty()).map(PathBuf::from)
    }

    /// The default role, if one is set.
    pub fn fallback_role(&self) -> Option<RoleName> {
        (!self.default_role.is_empty()).then(|| RoleName::new(self.default_role.as_str()))
    }

    pub(super) fn check(&self, faults: &mut Faults) {
        if self.file().is_none() {
            faults.add(
                "directory.url",
                format!("{:?} is not supported; use \"sqlite:FILE\"", without_credentials(&self.url)),
            );
        }
        if self.login_log < HumanDuration::seconds(3600) {
            faults.add("directory.login_log", format!("\"{}\" is too short; use at least \"1h\"", self.login_log));
        }
        if !self.default_role.is_empty() && !RoleName::is_well_formed(&self.default_role) {
            faults.add("directory.default_role", format!("{:?} is not a valid role name", self.default_role));
        }
    }
}
