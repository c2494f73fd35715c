//! Sixth phase: how often. Every rate of the rule or endpoint admits the request, or none is charged.

use super::{Arrival, Gate, Permit, record};
use crate::domain::rate::Charged;
use crate::error::Error;
use crate::rules::Mode;
use crate::rules::rate::{self, Rate};

/// Charges a permitted request.
pub fn charge(gate: &Gate, permit: &Permit, arrival: &Arrival) -> Result<(), Error> {
    match permit {
        Permit::Own(call) => {
            let rules = gate.rules.load();
            let rates = rules.rates_of(call.route.endpoint);
            let metrics = gate.metrics.own_rate();
            charge_all(gate, rates, call.caller.session(), arrival, |rate, charged| match charged {
                Charged::Admitted { .. } => metrics.allowed.inc(),
                Charged::Refused { .. } => {
                    metrics.denied.inc();
                    tell_shadow(rate, arrival, call.route.path);
                }
            })
        }
        Permit::Upstream(pass) => {
            let metrics = &pass.rule.metrics;
            let charged = charge_all(gate, &pass.rule.rates, pass.caller.session(), arrival, |rate, charged| {
                match (charged, rate.mode) {
                    (Charged::Admitted { .. }, _) => metrics.rate.allowed.inc(),
                    (Charged::Refused { .. }, Mode::Enforce) => metrics.rate.denied.inc(),
                    (Charged::Refused { .. }, Mode::Shadow) => {
                        metrics.shadow_denied.inc();
                        tell_shadow(rate, arrival, &pass.rule.name);
                    }
                }
            });
            match (charged, pass.rule.mode) {
                (Err(error), Mode::Shadow) => {
                    metrics.shadow_denied.inc();
                    record::shadow(arrival, &pass.rule.name, &error);
                    Ok(())
                }
                (charged, _) => charged,
            }
        }
    }
}

fn charge_all(
    gate: &Gate,
    rates: &[Rate],
    session: Option<&crate::domain::session::Session>,
    arrival: &Arrival,
    seen: impl FnMut(&Rate, Charged),
) -> Result<(), Error> {
    // Most rules have none: not even the clock is read for them.
    if rates.is_empty() {
        return Ok(());
    }
    rate::charge(rates, &*gate.counters, session, arrival.client, gate.clock.running(), seen)
}

fn tell_shadow(rate: &Rate, arrival: &Arrival, of: &str) {
    if rate.mode == Mode::Shadow {
        record::shadow(arrival, of, &rate.exceeded(std::time::Duration::ZERO));
    }
}
