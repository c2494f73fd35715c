//! Starts the simulated platform for `platform.kind = "simulated"`. The only file that depends on whether the
//! feature `demo` is built.

use super::StartError;
use crate::config::Config;
use crate::platform::wecom::WecomSettings;

#[cfg(feature = "demo")]
pub use crate::demo::SimulatedPlatform as Simulator;

/// Starts the simulator and returns the settings of a client that uses it.
#[cfg(feature = "demo")]
pub(super) async fn start(config: &Config) -> Result<(Simulator, WecomSettings), StartError> {
    use crate::domain::client::Client;
    use crate::domain::clock::Clock;
    use crate::domain::secret::Secret;

    let (key, address) = ("platform.simulated_listen", config.platform.simulated_listen);
    // The simulator has its own clock, which its control page can advance; the gateway's clock must not move.
    let started = Simulator::start(address, Clock::system()).await;
    let simulator = started.map_err(|source| StartError::Listen { key, address, source })?;
    let urls = Client::ALL.map(|client| config.clients.url(client));
    let domains: Vec<String> = urls.into_iter().chain([&config.server.public_url]).map(domain).collect();
    simulator.trust(&domains.iter().map(String::as_str).collect::<Vec<_>>());
    let settings = WecomSettings {
        corp_id: config.platform.main_corp(),
        agent_id: config.platform.agent(),
        secret: Secret::new(crate::demo::SECRET.to_owned()),
        authorize_url: simulator.authorize_url(),
        api_url: simulator.api_url(),
        timeout: config.platform.timeout.get(),
    };
    Ok((simulator, settings))
}

/// The domain of a URL as the platform's trusted domains list it: the host, with the port if it is not the
/// scheme's default.
#[cfg(feature = "demo")]
fn domain(url: &url::Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// A build without the feature `demo` has no simulator, so there is no value of this type.
#[cfg(not(feature = "demo"))]
pub enum Simulator {}

#[cfg(not(feature = "demo"))]
impl Simulator {
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        match *self {}
    }

    pub(super) async fn stop(self) {
        match self {}
    }
}

#[cfg(not(feature = "demo"))]
pub(super) async fn start(_: &Config) -> Result<(Simulator, WecomSettings), StartError> {
    Err(StartError::NoSimulator)
}
