//! The gateways of the fleet: a hash of their announcements, each with the time at which it stops counting.

use std::sync::LazyLock;
use std::time::Duration;

use async_trait::async_trait;

use super::RedisStore;
use super::lookup::key_lifetime;
use super::script::{RedisCall, ServerScript, script};
use crate::domain::gateway_status::{GatewayId, GatewayStatus};
use crate::domain::partition::Partition;
use crate::store::StoreError;
use crate::store::fleet::FleetStore;

static ANNOUNCE: LazyLock<ServerScript> = script!("announce_status.lua");
static GATEWAYS: LazyLock<ServerScript> = script!("gateways.lua");

/// The partition that has the announcements: there are few.
fn partition() -> Partition {
    Partition::of("gateways")
}

impl RedisStore {
    fn gateways_key(&self) -> String {
        self.servers.keys().gateways(partition())
    }
}

#[async_trait]
impl FleetStore for RedisStore {
    async fn announce(&self, status: &GatewayStatus, lifetime: Duration) -> Result<(), StoreError> {
        let text = serde_json::to_string(status).map_err(|error| StoreError::Damaged(error.into()))?;
        let call = RedisCall::script(&ANNOUNCE, partition(), &[self.gateways_key()])
            .arg(status.id.as_str())
            .arg(text)
            .arg(key_lifetime(lifetime));
        self.servers.run("announce", call).await
    }

    async fn withdraw(&self, id: &GatewayId) -> Result<(), StoreError> {
        let call = RedisCall::command(partition(), "HDEL").arg(self.gateways_key()).arg(id.as_str());
        self.servers.run::<u64>("announce", call).await.map(|_| ())
    }

    async fn gateways(&self) -> Result<Vec<GatewayStatus>, StoreError> {
        let call = RedisCall::script(&GATEWAYS, partition(), &[self.gateways_key()]);
        let live: Vec<String> = self.servers.run("gateways", call).await?;
        // One of another version may say things that this one cannot read.
        let mut gateways: Vec<GatewayStatus> =
            live.iter().filter_map(|status| serde_json::from_str(status).ok()).collect();
        gateways.sort_by(|left, right| (left.started_at, &left.id).cmp(&(right.started_at, &right.id)));
        Ok(gateways)
    }
}
