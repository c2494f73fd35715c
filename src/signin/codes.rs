//! Authorization codes: each works in the one way of signing in that it arrived by, and a network that sends invalid
//! ones is stopped before the platform is asked.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::clock::Clock;
use crate::domain::device::ClientDevice;
use crate::domain::network::Network;
use crate::domain::rate::{Charged, Counters, Exceeded, Window, charge_network, refund_network};
use crate::domain::secret::Digest;
use crate::error::{BadRequest, Error, chain};
use crate::metrics::Metrics;
use crate::store::once::{ClaimKey, ClaimKind, ClaimOutcome, OnceStore};
use crate::store::rate_counters::InMemoryRateCounters;

/// How long the platform's codes live.
const CODE_LIFETIME: Duration = Duration::from_secs(300);

/// Invalid codes of one network, and multiples of it for the networks around that of an IPv6 address. Users rarely
/// bring one, a whole office may share an address.
const INVALID_CODES: Window = Window { limit: 120, per: Duration::from_secs(60) };

/// Most networks whose invalid codes are counted.
const MAX_NETWORKS: usize = 10_000;

/// The counter of invalid codes; no other rate is counted here.
const RATE: u64 = 0;

/// The way in which a code arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CodeUse<'a> {
    /// The callback of a redirect, with the nonce of its flow.
    Redirect { flow: Option<&'a str> },
    /// The callback of a scanned QR code.
    Scan { scan_id: &'a str },
    /// An agent's sign-in.
    Agent,
}

impl CodeUse<'_> {
    fn digest(self) -> Digest {
        match self {
            CodeUse::Redirect { flow } => Digest::of(&["redirect", flow.unwrap_or_default()]),
            CodeUse::Scan { scan_id } => Digest::of(&["scan", scan_id]),
            CodeUse::Agent => Digest::of(&["agent"]),
        }
    }
}

/// The codes of the last five minutes, as digests, and the number of invalid ones of each network.
pub(super) struct AuthorizationCodes {
    claims: Arc<dyn OnceStore>,
    /// Counted in each gateway separately: it bounds what one gateway asks the platform.
    invalid: InMemoryRateCounters,
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl AuthorizationCodes {
    pub(super) fn new(claims: Arc<dyn OnceStore>, clock: Clock, metrics: Arc<Metrics>) -> Self {
        Self { claims, invalid: InMemoryRateCounters::new(MAX_NETWORKS), clock, metrics }
    }

    /// Ties a code to its use; refuses one that arrived in another way before, also if it was refused there: the
    /// platform does not say for which way it issued a code.
    pub(super) async fn claim(&self, code: &str, way: CodeUse<'_>, device: &ClientDevice) -> Result<(), Error> {
        let way = way.digest();
        match self.claims.claim(&claim_key(code, device), way.as_str(), CODE_LIFETIME).await? {
            ClaimOutcome::First => Ok(()),
            ClaimOutcome::Taken(first) if first == way.as_str() => Ok(()),
            ClaimOutcome::Taken(_) => Err(BadRequest::SignInCode.into()),
        }
    }

    /// Exchanges a code by `exchange`, which asks the platform, unless the network has sent too many invalid ones.
    pub(super) async fn exchange<T>(
        &self,
        code: &str,
        device: &ClientDevice,
        exchange: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let (network, at) = (Network::of_text(&device.address), self.clock.running());
        // Counted before the platform answers, so that a flood does not wait side by side; taken back if the code was valid.
        if let Charged::Refused { retry_after } = charge_network(&self.invalid, RATE, network, INVALID_CODES, at) {
            self.metrics.count_limit_reached("invalid_codes");
            let exceeded = Exceeded { by: "address", window: INVALID_CODES };
            return Err(Error::RateLimited { retry_after, exceeded });
        }
        let result = exchange.await;
        if !matches!(result, Err(Error::BadRequest(BadRequest::SignInCode))) {
            refund_network(&self.invalid, RATE, network, INVALID_CODES, at);
        }
        if result.is_ok()
            && let Err(error) = self.claims.prove(&claim_key(code, device)).await
        {
            // Only the order in which claims are forgotten depends on it.
            tracing::debug!(error = %chain(&error), "cannot mark a code as confirmed");
        }
        result
    }

    /// Removes the counts of networks that have expired.
    pub(super) fn sweep(&self) {
        self.invalid.sweep(self.clock.running());
    }
}

fn claim_key(code: &str, device: &ClientDevice) -> ClaimKey {
    ClaimKey { kind: ClaimKind::Code, digest: Digest::of(&[code]), network: Network::of_text(&device.address) }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::store::in_memory_claims::InMemoryClaims;

    fn device(address: String) -> ClientDevice {
        ClientDevice { address, user_agent: String::new(), request_id: String::new() }
    }

    /// The result of a code that the platform calls valid or not.
    fn exchange(codes: &AuthorizationCodes, address: String, answer: Result<(), Error>) -> Result<(), Error> {
        let device = device(address);
        codes.exchange("code", &device, async { answer }).now_or_never().expect("no wait")
    }

    #[test]
    fn invalid_codes_of_many_networks_of_one_site_are_limited() {
        let (clock, metrics) = (Clock::system(), Arc::new(Metrics::new().expect("metrics")));
        let codes = AuthorizationCodes::new(Arc::new(InMemoryClaims::new(clock.clone())), clock, metrics);
        let address = |network: usize| format!("2001:db8:1:{network:x}::1");
        for network in 0..1000 {
            assert!(exchange(&codes, address(network), Ok(())).is_ok(), "valid codes do not count: {network}");
        }
        // Four /64 of each /56.
        let networks = (0..5000).map(|number| number % 256 * 256 + number / 256 % 4);
        let invalid = || Err(BadRequest::SignInCode.into());
        let mut asked = 0;
        for network in networks {
            match exchange(&codes, address(network), invalid()) {
                Err(Error::BadRequest(BadRequest::SignInCode)) => asked += 1,
                Err(Error::RateLimited { exceeded, .. }) => assert_eq!(exceeded.window, INVALID_CODES),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(asked, 120 * 32);
        assert!(matches!(exchange(&codes, address(0xffff), Ok(())), Err(Error::RateLimited { .. })));
        assert!(exchange(&codes, "2001:db8:2::1".to_owned(), Ok(())).is_ok(), "another site");
        assert!(exchange(&codes, "192.0.2.1".to_owned(), Ok(())).is_ok(), "IPv4");
    }
}
