//! `[rules]`: where the rule files are.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

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
