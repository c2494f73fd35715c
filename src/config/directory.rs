//! `[directory]`: where employees, roles and the logs are stored.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Faults, HumanDuration};
use crate::domain::role::RoleName;

/// `[directory]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DirectoryConfig {
    /// `sqlite:FILE`, relative to `server.data_dir`.
    pub url: String,
    /// The role of employees who have none; empty: they are refused (1003).
    pub default_role: String,
    /// How long the login log and the audit log are kept.
    pub login_log: HumanDuration,
}

impl Default for DirectoryConfig {
    fn default() -> Self {
        let login_log = HumanDuration::seconds(180 * 86_400);
        Self { url: "sqlite:directory.db".to_owned(), default_role: "user".to_owned(), login_log }
    }
}

impl DirectoryConfig {
    /// The database file, relative to the data directory.
    pub fn file(&self) -> Option<PathBuf> {
        self.url.strip_prefix("sqlite:").filter(|file| !file.is_empty()).map(PathBuf::from)
    }

    /// The role of employees who have none.
    pub fn fallback_role(&self) -> Option<RoleName> {
        (!self.default_role.is_empty()).then(|| RoleName::new(self.default_role.as_str()))
    }

    pub(super) fn check(&self, faults: &mut Faults) {
        if self.file().is_none() {
            faults.add("directory.url", "only \"sqlite:FILE\" is supported");
        }
        if self.login_log < HumanDuration::seconds(3600) {
            faults.add("directory.login_log", "must be at least 1h");
        }
        if !self.default_role.is_empty() && !RoleName::is_well_formed(&self.default_role) {
            faults.add("directory.default_role", "must be a role's name");
        }
    }
}
