//! `[store]`: where sessions and tickets are stored.

use serde::{Deserialize, Serialize};

use super::Faults;
use super::values::without_credentials;

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
            faults.add("store.url", format!("{:?} is not supported; use \"embedded\"", without_credentials(&self.url)));
        }
    }
}
