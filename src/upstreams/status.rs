//! What operators see of the upstreams: `deskgate upstream list` and the gauge of healthy addresses.

use serde::{Deserialize, Serialize};

use super::Upstreams;
use super::address::{Address, Availability};
use super::moment::Moment;
use super::upstream::{Presence, Upstream};
use crate::config::{UpstreamAddress, WeightedAddress};

/// Whether an address gets requests, as operators see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressStatus {
    /// It gets its share.
    Healthy,
    /// It has returned and gets less than its share.
    SlowStart,
    /// Its requests failed, so it gets none for a while.
    Ejected,
    /// Its health checks fail.
    Unhealthy,
    /// A name that has not been resolved yet.
    Unresolved,
}

impl AddressStatus {
    /// The word for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::SlowStart => "slow start",
            Self::Ejected => "ejected",
            Self::Unhealthy => "unhealthy",
            Self::Unresolved => "unresolved",
        }
    }
}

/// An address as `deskgate upstream list` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpstreamRow {
    /// The name of the upstream.
    pub upstream: String,
    /// The address.
    pub address: String,
    /// Its weight.
    pub weight: u32,
    /// Whether it gets requests.
    pub state: AddressStatus,
    /// The end of its ejection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ejected_until: Option<String>,
    /// Requests in flight, open WebSockets included.
    pub in_flight: usize,
    /// Moving average of the time to the response header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
    /// Failed requests since the start.
    pub failures: u64,
    /// Failed requests since the last response.
    pub consecutive_failures: u32,
    /// When it last failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure_at: Option<String>,
    /// Why it last failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<String>,
}

impl Upstreams {
    /// All addresses of the configured upstreams.
    pub(crate) fn rows(&self) -> Vec<UpstreamRow> {
        let now = Moment::now();
        let mut configured: Vec<_> =
            self.all().iter().filter(|one| one.presence == Presence::Configured).cloned().collect();
        configured.sort_by(|one, other| one.name.cmp(&other.name));
        let rows = |upstream: &Upstream| {
            let known = upstream.addresses.iter().map(|address| row(upstream, address, now));
            known.chain(self.unresolved(upstream)).collect::<Vec<_>>()
        };
        configured.iter().flat_map(|upstream| rows(upstream)).collect()
    }

    /// The names without an address.
    fn unresolved(&self, upstream: &Upstream) -> Vec<UpstreamRow> {
        let (names, failed) = (self.names(), self.failed_names());
        let row = |entry: &WeightedAddress| {
            let UpstreamAddress::Name { host, port } = &entry.address else { return None };
            if names.contains_key(&(host.clone(), *port)) {
                return None;
            }
            let failure = failed.get(&(upstream.name.clone(), host.clone(), *port));
            Some(UpstreamRow {
                upstream: upstream.name.to_string(),
                address: format!("{host}:{port}"),
                weight: entry.weight,
                state: AddressStatus::Unresolved,
                ejected_until: None,
                in_flight: 0,
                latency_ms: None,
                failures: 0,
                consecutive_failures: 0,
                last_failure_at: failure.map(|failure| failure.at.iso8601()),
                last_failure: failure.map(|failure| failure.why.clone()),
            })
        };
        upstream.config.addresses.iter().filter_map(row).collect()
    }

    /// Sets the gauge of healthy addresses, and removes addresses that are gone from it.
    pub(crate) fn measure(&self) {
        let mut shown = self.shown_addresses();
        let mut current = Vec::new();
        for row in self.rows() {
            let gets_requests = matches!(row.state, AddressStatus::Healthy | AddressStatus::SlowStart);
            self.metrics()
                .upstream_healthy()
                .with_label_values(&[&row.upstream, &row.address])
                .set(gets_requests.into());
            current.push((row.upstream, row.address));
        }
        for (upstream, address) in shown.iter().filter(|gone| !current.contains(gone)) {
            let _ = self.metrics().upstream_healthy().remove_label_values(&[upstream, address]);
        }
        *shown = current;
    }
}

fn row(upstream: &Upstream, address: &Address, now: Moment) -> UpstreamRow {
    let state = match upstream.availability(address, now) {
        Availability::Available => AddressStatus::Healthy,
        Availability::SlowStart(_) => AddressStatus::SlowStart,
        Availability::Ejected => AddressStatus::Ejected,
        Availability::Unhealthy => AddressStatus::Unhealthy,
    };
    let record = address.state.record();
    UpstreamRow {
        upstream: upstream.name.to_string(),
        address: address.state.name.to_string(),
        weight: address.weight,
        state,
        ejected_until: record.ejected_until.filter(|_| state == AddressStatus::Ejected).map(|at| at.iso8601()),
        in_flight: address.state.in_flight(),
        latency_ms: address.state.latency().map(|latency| latency.as_secs_f64() * 1000.0),
        failures: address.state.failures(),
        consecutive_failures: address.state.consecutive_failures(),
        last_failure_at: record.last_failure.as_ref().map(|failure| failure.at.iso8601()),
        last_failure: record.last_failure.as_ref().map(|failure| failure.why.clone()),
    }
}
