//! Phase 6: charges the rates of the rule or endpoint. A refused request is charged to none of them.

use super::observe::DecisionObserver;
use super::{Arrival, Permit, Policy};
use crate::error::Error;
use crate::rules::{Mode, rate};

/// Charges an authorized request.
pub(crate) fn charge(
    policy: &Policy<'_>,
    permit: &Permit,
    arrival: &Arrival,
    observer: &mut impl DecisionObserver,
) -> Result<(), Error> {
    let rates = permit.rates();
    // Most rules have none: the clock is not read for them.
    if rates.is_empty() {
        return Ok(());
    }
    let (session, now) = (permit.caller().session(), policy.clock.running());
    let charged = rate::charge(rates, policy.counters, session, arrival.client, now, |rate, charged| {
        observer.on_charge(permit, rate, charged);
    });
    observer.on_limit(permit, &charged);
    match permit {
        Permit::Upstream(permit) if permit.rule.mode == Mode::Shadow => Ok(()),
        Permit::Upstream(_) | Permit::Own(_) | Permit::Preflight(_) => charged,
    }
}
