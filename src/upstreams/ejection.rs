//! Passive ejection: an address whose requests fail in a row gets none for a while, for longer each time. What counts is a
//! failed connect, a reset, a timeout or a response that is not HTTP. A 502, 503 or 504 of the upstream does not: it is an
//! answer, often of one route only, and health checks tell more about it.

use std::sync::PoisonError;
use std::time::Duration;

use super::address::{Address, Availability, LastFailure};
use super::failure::FailureReason;
use super::moment::Moment;
use super::upstream::Upstream;
use crate::domain::clock::Timestamp;

impl Upstream {
    /// Records a failure of an address, and ejects it after too many in a row.
    pub(crate) fn failed(&self, address: &Address, reason: FailureReason, at: Timestamp) {
        self.failed_at(address, reason, Moment::now(), at);
    }

    pub(super) fn failed_at(&self, address: &Address, reason: FailureReason, now: Moment, at: Timestamp) {
        address.metrics.count_failure(reason.as_str());
        address.state.record().last_failure = Some(LastFailure { at, why: reason.as_str().to_owned() });
        let in_a_row = address.state.count_failure();
        let limit = self.config.ejection.failures;
        if limit > 0 && in_a_row >= limit {
            self.eject(address, reason, now, at);
        }
    }

    fn eject(&self, address: &Address, reason: FailureReason, now: Moment, at: Timestamp) {
        let _exclusive = self.shared.ejecting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_out = |address: &Address| self.availability(address, now) == Availability::Ejected;
        let is_unhealthy = self.availability(address, now) == Availability::Unhealthy;
        let ejected = self.addresses.iter().filter(|address| is_out(address)).count();
        let settings = &self.config.ejection;
        let most = self.addresses.len() * usize::try_from(settings.most).unwrap_or(0) / 100;
        if is_out(address) || is_unhealthy || ejected >= most {
            return;
        }
        let mut record = address.state.record();
        let length = next_length(record.ejection, now, settings.duration.get(), settings.longest.get());
        record.ejection = Some((now.plus(length), length));
        let until = at.plus(length);
        record.ejected_until = Some(until);
        drop(record);
        address.state.eject_until(now.plus(length));
        address.state.set_on_probation(settings.failures);
        address.metrics.ejections.inc();
        tracing::warn!(
            target: "deskgate::upstream",
            { upstream.name = &*self.name, upstream.address = &*address.state.name, reason = reason.as_str(),
              duration_ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX), until = until.iso8601() },
            "address ejected after {} failures in a row", settings.failures
        );
    }

    /// Logs that an address is back: its ejection has ended, and it gets a request or passes a check.
    pub(super) fn note_return(&self, address: &Address, now: Moment) {
        if address.state.take_return(now) {
            tracing::info!(
                target: "deskgate::upstream",
                { upstream.name = &*self.name, upstream.address = &*address.state.name },
                "address returns after its ejection"
            );
        }
    }
}

/// Twice the last ejection if the address has not been back for as long as that took.
fn next_length(last: Option<(Moment, Duration)>, now: Moment, first: Duration, longest: Duration) -> Duration {
    match last {
        Some((end, length)) if now.since(end) < length => (length * 2).min(longest),
        _ => first,
    }
}

#[cfg(test)]
mod tests;
