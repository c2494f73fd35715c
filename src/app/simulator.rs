//! Starts the simulated platform for `platform.kind = "simulated"`. The simulator itself is not product code.

use url::Url;

use super::StartError;
use crate::config::Config;
use crate::domain::client::Client;
use crate::domain::clock::Clock;
use crate::domain::secret::Secret;
use crate::platform::simulated;
pub use crate::platform::simulated::SimulatedPlatform as Simulator;
use crate::platform::wecom::WecomSettings;

/// Starts the simulator and returns the settings of a WeCom client that uses it.
pub(super) async fn start(config: &Config) -> Result<(Simulator, WecomSettings), StartError> {
    let (key, address) = ("platform.simulated_listen", config.platform.simulated_listen);
    // The simulator has its own clock, which its control page can advance; the gateway's clock must not move.
    let simulator = Simulator::start(address, Clock::system()).await.map_err(|source| StartError::Listen {
        key,
        address,
        source,
    })?;
    let urls = Client::ALL.map(|client| config.clients.url(client));
    let domains: Vec<String> = urls.into_iter().chain([&config.server.public_url]).map(trusted_domain).collect();
    simulator.trust(&domains.iter().map(String::as_str).collect::<Vec<_>>());
    let settings = WecomSettings {
        corp_id: config.platform.main_corp(),
        agent_id: config.platform.agent(),
        secret: Secret::new(simulated::SECRET.to_owned()),
        authorize_url: simulator.authorize_url(),
        api_url: simulator.api_url(),
        timeout: config.platform.timeout.get(),
    };
    Ok((simulator, settings))
}

/// The host, with its port if that is not the scheme's default: what WeCom calls a trusted domain.
fn trusted_domain(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}
