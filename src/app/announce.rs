//! Announces this gateway to its fleet: what `deskgate fleet` shows.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::config::Config;
use crate::domain::clock::Timestamp;
use crate::domain::gateway_status::{GatewayId, GatewayStatus};
use crate::domain::secret::random_name;
use crate::pipeline::Gate;
use crate::sockets::registry::Registry;
use crate::store::Store;

/// How often a gateway announces itself.
const INTERVAL: Duration = Duration::from_secs(2);

/// How long an announcement counts: a gateway that was killed is listed for this long.
const LIFETIME: Duration = Duration::from_secs(10);

/// What announces this gateway.
#[derive(Clone)]
pub(super) struct Announcer {
    id: GatewayId,
    host: String,
    listen: SocketAddr,
    config: Arc<ArcSwap<Config>>,
    started_at: Timestamp,
    store: Arc<dyn Store>,
    gate: Arc<Gate>,
    registry: Arc<Registry>,
}

impl Announcer {
    pub(super) fn new(
        config: Arc<ArcSwap<Config>>,
        listen: SocketAddr,
        store: Arc<dyn Store>,
        gate: Arc<Gate>,
        registry: Arc<Registry>,
    ) -> Self {
        let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Self {
            id: GatewayId::new(random_name(10)),
            host,
            listen,
            config,
            started_at: gate.clock.now(),
            store,
            gate,
            registry,
        }
    }

    /// Announces the gateway again and again.
    pub(super) async fn run(self) {
        let mut was_announced = true;
        loop {
            let announced = self.store.announce(&self.status(), LIFETIME).await;
            if let Err(error) = &announced
                && was_announced
            {
                tracing::warn!(%error, "this gateway could not be announced; `deskgate fleet` does not show it");
            }
            was_announced = announced.is_ok();
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Tells the fleet that this gateway stops. Without an answer its announcement expires by itself.
    pub(super) async fn withdraw(&self) {
        let _ = self.store.withdraw(&self.id).await;
    }

    fn status(&self) -> GatewayStatus {
        let lag = self.store.feed().age();
        GatewayStatus {
            id: self.id.clone(),
            host: self.host.clone(),
            listen: self.listen.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("DESKGATE_COMMIT").to_owned(),
            rules: self.gate.rules.load().digest().as_str().to_owned(),
            config: self.config.load().fleet_digest().as_str().to_owned(),
            sockets: self.registry.count_sockets(),
            feed_lag_ms: lag.map(|lag| u64::try_from(lag.as_millis()).unwrap_or(u64::MAX)),
            started_at: self.started_at,
            announced_at: self.gate.clock.now(),
        }
    }
}
