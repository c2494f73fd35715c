//! The gateways of the fleet: a hash of their announcements, each with the time at which it stops counting.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;

use super::lookup::key_lifetime;
use super::script::RedisCall;
use super::{RedisStore, records};
use crate::domain::gateway_status::{GatewayId, GatewayStatus};
use crate::domain::partition::Partition;
use crate::store::StoreError;
use crate::store::fleet::FleetStore;

/// The partition that has the announcements: there are few.
fn partition() -> Partition {
    Partition::of("gateways")
}

impl RedisStore {
    fn on_gateways(&self, command: &str) -> RedisCall {
        RedisCall::command(partition(), command).arg(self.servers.keys().gateways(partition()))
    }
}

#[async_trait]
impl FleetStore for RedisStore {
    async fn announce(&self, status: &GatewayStatus, lifetime: Duration) -> Result<(), StoreError> {
        let until = records::time_digits(self.clock.now().plus(lifetime));
        let status_text = serde_json::to_string(status).map_err(|error| StoreError::Damaged(error.into()))?;
        let calls = [
            self.on_gateways("HSET").arg(status.id.as_str()).arg(format!("{until}{status_text}")),
            // All gateways announce themselves with the same lifetime.
            self.on_gateways("PEXPIRE").arg(key_lifetime(lifetime)),
        ];
        self.servers.run_all::<u64>("announce", &calls).await.map(|_| ())
    }

    async fn withdraw(&self, id: &GatewayId) -> Result<(), StoreError> {
        self.servers.run::<u64>("announce", self.on_gateways("HDEL").arg(id.as_str())).await.map(|_| ())
    }

    async fn gateways(&self) -> Result<Vec<GatewayStatus>, StoreError> {
        let now = records::time_digits(self.clock.now());
        let all: HashMap<String, String> = self.servers.run("gateways", self.on_gateways("HGETALL")).await?;
        let (live, gone): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, status)| *status > now);
        if !gone.is_empty() {
            let ids: Vec<String> = gone.into_iter().map(|(id, _)| id).collect();
            self.servers.run::<u64>("gateways", self.on_gateways("HDEL").arg(ids)).await?;
        }
        // One of another version may say things that this one cannot read.
        let read = |(_, status): (String, String)| serde_json::from_str(status.get(records::TIME..)?).ok();
        let mut gateways: Vec<GatewayStatus> = live.into_iter().filter_map(read).collect();
        gateways.sort_by(|left, right| (left.started_at, &left.id).cmp(&(right.started_at, &right.id)));
        Ok(gateways)
    }
}
