//! Sixth phase: how often. Every rate of the rule or endpoint admits the request, or none is charged.

use super::{Arrival, Gate, Permit, record};
use crate::domain::rate::Charged;
use crate::domain::session::Session;
use crate::error::Error;
use crate::metrics::RateMetrics;
use crate::rules::Mode;
use crate::rules::rate::{self, Rate};

/// Charges a permitted request.
pub fn charge(gate: &Gate, permit: &Permit, arrival: &Arrival) -> Result<(), Error> {
    match permit {
        Permit::Own(call) => {
            let rules = gate.rules.load();
            let rates = rules.rates_of(call.route.endpoint);
            let metrics = gate.metrics.own_rate();
            charge_all(gate, rates, call.caller.session(), arrival, call.route.path, metrics)
                .inspect_err(|_| metrics.denied.inc())
        }
        Permit::Upstream(pass) => {
            let rule = &pass.rule;
            let charged = charge_all(gate, &rule.rates, pass.caller.session(), arrival, &rule.name, &rule.metrics.rate);
            match (charged, rule.mode) {
                (Err(error), Mode::Shadow) => {
                    rule.metrics.rate.shadow_denied.inc();
                    record::shadow(arrival, &rule.name, &error);
                    Ok(())
                }
                (Err(error), Mode::Enforce) => {
                    rule.metrics.rate.denied.inc();
                    Err(error)
                }
                (Ok(()), _) => Ok(()),
            }
        }
    }
}

fn charge_all(
    gate: &Gate,
    rates: &[Rate],
    session: Option<&Session>,
    arrival: &Arrival,
    of: &str,
    metrics: &RateMetrics,
) -> Result<(), Error> {
    // Most rules have none: not even the clock is read for them.
    if rates.is_empty() {
        return Ok(());
    }
    let now = gate.clock.running();
    rate::charge(rates, &*gate.counters, session, arrival.client, now, |rate, charged| match (charged, rate.mode) {
        (Charged::Admitted { .. }, _) => metrics.allowed.inc(),
        // The one refusal that ends it is counted by whoever says it.
        (Charged::Refused { .. }, Mode::Enforce) => {}
        (Charged::Refused { retry_after }, Mode::Shadow) => {
            metrics.shadow_denied.inc();
            record::shadow(arrival, of, &rate.exceeded(retry_after));
        }
    })
}
