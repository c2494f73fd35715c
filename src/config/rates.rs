//! `[rates]`: rate limits that all gateways on a shared store count together.

use serde::{Deserialize, Serialize};

use crate::domain::rate::RateOutage;

/// `[rates]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RatesConfig {
    /// What happens to requests with a shared rate while the store cannot be asked and the leased share is used up or has
    /// expired: `local` admits an equal part of the limit on each gateway, `refuse` refuses them with 1503.
    pub outage: RateOutage,
}

impl Default for RatesConfig {
    fn default() -> Self {
        Self { outage: RateOutage::Local }
    }
}
