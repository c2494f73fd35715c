//! What a decision reports while it is made. The observer in `record` counts and logs, the one in `explain` keeps every
//! step, and `()` ignores them. An observer cannot change the decision.

use super::Permit;
use crate::domain::rate::Charged;
use crate::error::Error;
use crate::rules::evaluate::{Admitted, Observer};
use crate::rules::rate::Rate;
use crate::rules::{Mode, Rule};

/// Sees the steps of a decision, besides the single checks of [`Observer`].
pub trait DecisionObserver: Observer {
    /// A WebSocket handshake was refused because of its `Origin`.
    fn on_refused_origin(&mut self, _rule: &Rule) {}

    /// A rule was evaluated. `_mode` is the one that applies to the caller; in shadow mode the request goes on whatever
    /// the outcome.
    fn on_rule(&mut self, _rule: &Rule, _mode: Mode, _outcome: &Result<Admitted, Error>) {}

    /// One rate was charged.
    fn on_charge(&mut self, _permit: &Permit, _rate: &Rate, _charged: Charged) {}

    /// All rates were charged, or one of them refused the request. A rule in shadow mode lets it pass even so.
    fn on_limit(&mut self, _permit: &Permit, _outcome: &Result<(), Error>) {}
}

impl DecisionObserver for () {}
