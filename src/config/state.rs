//! `[store]`, `[directory]`, `[rules]`: what the gateway remembers and obeys.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Faults, Span};
use crate::domain::role::RoleName;

/// `[store]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// `embedded`: sessions and tickets in a database under `server.data_dir`.
    pub url: String,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { url: "embedded".to_owned() }
    }
}

impl StoreConfig {
    pub(super) fn check(&self, faults: &mut Faults) {
        if self.url != "embedded" {
            faults.add("store.url", "only \"embedded\" is supported");
        }
    }
}

/// `[directory]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DirectoryConfig {
    /// `sqlite:FILE`, relative to `server.data_dir`.
    pub url: String,
    /// The role of employees who have none; empty: they are refused (1003).
    pub default_role: String,
    /// How long the login log and the audit log are kept.
    pub login_log: Span,
}

impl Default for DirectoryConfig {
    fn default() -> Self {
        let login_log = Span::seconds(180 * 86_400);
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
        if self.login_log < Span::seconds(3600) {
            faults.add("directory.login_log", "must be at least 1h");
        }
        if !self.default_role.is_empty() && !RoleName::is_well_formed(&self.default_role) {
            faults.add("directory.default_role", "must be a role's name");
        }
    }
}

/// `[rules]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RulesConfig {
    /// The folder of rule files; every `*.toml` in it is read.
    pub dir: PathBuf,
    /// Whether rules are loaded again when a file of the folder changes, as on SIGHUP.
    pub watch: bool,
}

impl Default for RulesConfig {
    fn default() -> Self {
        Self { dir: PathBuf::from("lua-free-rules"), watch: false }
    }
}
