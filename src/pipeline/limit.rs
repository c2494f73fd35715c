//! Phase 6: charges the rates of the rule or endpoint. A refused request is charged to none of them.
//!
//! Rates of this gateway, and shared ones of which it has leased a share, are charged without waiting ([`charge`]). Only what
//! remains asks the store ([`ask`]).

use super::observe::DecisionObserver;
use super::{Arrival, Permit, Policy};
use crate::error::Error;
use crate::rules::rate::{RateCounters, RatedCaller, UnaskedRates};
use crate::rules::{Mode, rate};

/// Charges an authorized request, as far as that is possible without the store.
pub(crate) fn charge(
    policy: &Policy<'_>,
    permit: &Permit,
    arrival: &Arrival,
    observer: &mut impl DecisionObserver,
) -> Result<UnaskedRates, Error> {
    let rates = permit.rates();
    // Most rules have none: the clock is not read for them.
    if rates.is_empty() {
        return Ok(UnaskedRates::none(Default::default()));
    }
    let now = policy.clock.running();
    let charged = rate::charge(rates, counters(policy), caller(permit, arrival), now, |rate, charged| {
        observer.on_charge(permit, rate, charged);
    });
    match charged {
        Ok(unasked) if !unasked.is_empty() => Ok(unasked),
        Ok(unasked) => finish(permit, Ok(()), observer).map(|()| unasked),
        Err(error) => finish(permit, Err(error), observer).map(|()| UnaskedRates::none(now)),
    }
}

/// Asks the store about the rates that could not be charged without it.
pub(super) async fn ask(
    policy: &Policy<'_>,
    permit: &Permit,
    unasked: UnaskedRates,
    arrival: &Arrival,
    observer: &mut (impl DecisionObserver + Send),
) -> Result<(), Error> {
    let charge = rate::ask(permit.rates(), counters(policy), caller(permit, arrival), unasked, |rate, charged| {
        observer.on_charge(permit, rate, charged);
    });
    let charged = charge.await;
    finish(permit, charged, observer)
}

/// Reports the outcome. A rule in shadow mode lets the request pass all the same.
fn finish(permit: &Permit, charged: Result<(), Error>, observer: &mut impl DecisionObserver) -> Result<(), Error> {
    observer.on_limit(permit, &charged);
    match permit {
        Permit::Upstream(permit) if permit.rule.mode == Mode::Shadow => Ok(()),
        Permit::Upstream(_) | Permit::Own(_) | Permit::Preflight(_) | Permit::Redirect(_) => charged,
    }
}

fn counters<'a>(policy: &Policy<'a>) -> RateCounters<'a> {
    RateCounters { local: policy.counters, shared: policy.shared_counters }
}

fn caller<'a>(permit: &'a Permit, arrival: &Arrival) -> RatedCaller<'a> {
    RatedCaller { session: permit.caller().session(), address: arrival.client }
}
