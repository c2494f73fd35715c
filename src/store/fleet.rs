//! The gateways that use a store.

use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::gateway_status::{GatewayId, GatewayStatus};

/// Where gateways announce themselves.
#[async_trait]
pub trait FleetStore: Send + Sync {
    /// Replaces what a gateway said about itself. It counts for `lifetime`.
    async fn announce(&self, status: &GatewayStatus, lifetime: Duration) -> Result<(), StoreError>;

    /// Removes a gateway that stops.
    async fn withdraw(&self, id: &GatewayId) -> Result<(), StoreError>;

    /// The gateways that have announced themselves and whose announcement still counts, in the order of their start.
    async fn gateways(&self) -> Result<Vec<GatewayStatus>, StoreError>;
}
