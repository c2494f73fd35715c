//! Active health checks: one task connects to every address of the upstreams that want it, and asks for a path if one is
//! set. Several failed checks in a row make an address unhealthy, several passed ones healthy again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use http::header::{HOST, USER_AGENT};
use pingora_core::connectors::http::Connector;
use pingora_http::RequestHeader;

use super::address::{Address, Availability, LastFailure, mix};
use super::failure::FailureReason;
use super::moment::Moment;
use super::upstream::{Presence, Upstream};
use super::{Upstreams, keyed_loops};
use crate::config::HealthConfig;
use crate::domain::clock::Timestamp;

/// How many groups of addresses have their checks at different times.
const GROUPS: u64 = 20;

/// An address to check: the index of its upstream and its name.
type CheckedAddress = (usize, Box<str>);

/// Checks addresses for as long as the process runs.
pub(crate) async fn run(upstreams: Arc<Upstreams>) {
    // Pools nothing: every check opens a connection, as new requests do.
    let connector = Arc::new(Connector::<()>::new(None));
    let wanted = || {
        let all = (0..upstreams.count()).filter_map(|index| Some((index, checked(&upstreams, index)?)));
        let named = |(index, upstream): (usize, Arc<Upstream>)| {
            upstream.addresses.iter().map(|address| (index, address.state.name.clone())).collect::<Vec<_>>()
        };
        all.flat_map(named).collect()
    };
    let begun = Instant::now();
    let start = |key: CheckedAddress| check_forever(upstreams.clone(), connector.clone(), key, begun).boxed();
    keyed_loops::run(upstreams.changes(), wanted, start).await;
}

/// The upstream, if its addresses are checked.
fn checked(upstreams: &Upstreams, index: usize) -> Option<Arc<Upstream>> {
    let upstream = upstreams.at(index)?;
    (upstream.presence == Presence::Configured && upstream.config.health.is_some()).then_some(upstream)
}

/// Checks an address until it is removed.
async fn check_forever(
    upstreams: Arc<Upstreams>,
    connector: Arc<Connector>,
    key: CheckedAddress,
    begun: Instant,
) -> CheckedAddress {
    while let Some(upstream) = checked(&upstreams, key.0) {
        let address = upstream.addresses.iter().find(|address| address.state.name == key.1);
        let (Some(address), Some(health)) = (address, &upstream.config.health) else { break };
        tokio::time::sleep(pause(address.state.seed, health.every.get(), begun.elapsed())).await;
        let outcome = tokio::time::timeout(health.timeout.get(), check(&connector, address, health)).await;
        let outcome = outcome.unwrap_or_else(|_| Err(format!("no answer within {}", health.timeout)));
        upstream.checked(address, health, outcome, Moment::now(), upstreams.clock().now());
    }
    key
}

/// How long to wait for the next check of an address. The addresses are spread over the time between two checks, so that
/// they are not checked all at once; those of one group are, because waking up costs more than the check itself.
fn pause(seed: u64, every: Duration, elapsed: Duration) -> Duration {
    let every = every.as_micros().max(u128::from(GROUPS));
    let due = every * u128::from(mix(seed) % GROUPS) / u128::from(GROUPS);
    let into = elapsed.as_micros() % every;
    let left = if due > into { due - into } else { due + every - into };
    Duration::from_micros(u64::try_from(left).unwrap_or(u64::MAX))
}

async fn check(connector: &Connector, address: &Address, health: &HealthConfig) -> Result<(), String> {
    let describe = |error: Box<pingora_core::Error>| FailureReason::of(&error).as_str().to_owned();
    let mut peer = address.peer.clone();
    // A connection that carries only one exchange is not pooled.
    peer.options.max_h2_streams = 1;
    let (mut exchange, _) = connector.get_http_session(&peer).await.map_err(describe)?;
    if health.path.is_empty() {
        return Ok(());
    }
    let mut request = RequestHeader::build("GET", health.path.as_bytes(), None).map_err(describe)?;
    request.insert_header(HOST, host(&address.state.name)).map_err(describe)?;
    request.insert_header(USER_AGENT, concat!("deskgate/", env!("CARGO_PKG_VERSION"))).map_err(describe)?;
    exchange.write_request_header(Box::new(request)).await.map_err(describe)?;
    exchange.finish_request_body().await.map_err(describe)?;
    exchange.read_response_header().await.map_err(describe)?;
    let status = exchange.response_header().map_or(0, |response| response.status.as_u16());
    exchange.shutdown().await;
    if health.expect.contains(&status) { Ok(()) } else { Err(format!("status {status}")) }
}

/// The `Host` of a check.
fn host(name: &str) -> &str {
    if name.starts_with("unix:") { "localhost" } else { name }
}

impl Upstream {
    fn checked(
        &self,
        address: &Address,
        health: &HealthConfig,
        outcome: Result<(), String>,
        now: Moment,
        at: Timestamp,
    ) {
        let state = &address.state;
        if outcome.is_ok() {
            self.note_return(address, now);
        }
        let is_unhealthy = self.availability(address, now) == Availability::Unhealthy;
        let mut record = state.record();
        if let Err(why) = &outcome {
            record.last_failure = Some(LastFailure { at, why: format!("health check: {why}") });
        }
        if outcome.is_ok() != is_unhealthy {
            record.contradicting_checks = 0;
            return;
        }
        record.contradicting_checks += 1;
        let needed = if is_unhealthy { health.healthy_after } else { health.unhealthy_after };
        if record.contradicting_checks < needed {
            return;
        }
        record.contradicting_checks = 0;
        drop(record);
        let (upstream, metrics, address) = (&*self.name, &address.metrics, &*state.name);
        match outcome {
            Ok(()) => {
                state.set_available_from(now);
                tracing::info!(
                    target: "deskgate::upstream",
                    { upstream.name = upstream, upstream.address = address },
                    "address is healthy again"
                );
            }
            Err(why) => {
                state.set_available_from(Moment::NEVER);
                metrics.count_failure(FailureReason::Check.as_str());
                tracing::warn!(
                    target: "deskgate::upstream",
                    { upstream.name = upstream, upstream.address = address, reason = why },
                    "address is unhealthy"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
