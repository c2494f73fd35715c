//! `[rules]`: where the rule files are.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `[rules]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RulesConfig {
    /// Folder of the rule files; every `*.toml` in it is loaded.
    pub dir: PathBuf,
    /// Reload when a rule file changes, as on SIGHUP.
    pub watch: bool,
}

impl Default for RulesConfig {
    fn default() -> Self {
        Self { dir: PathBuf::from("lua-free-rules"), watch: false }
    }
}
