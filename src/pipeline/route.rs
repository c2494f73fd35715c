//! Phase 2: finds what answers a request: one of the gateway's own endpoints, or the rule with the most specific
//! path. A path that neither has is 1404.

use std::sync::Arc;

use super::Handler;
use super::arrive::CheckedRequest;
use crate::config::Development;
use crate::endpoints::{self, EndpointMatch, OwnRoute};
use crate::error::{Error, Forbidden};
use crate::rules::rate::Rate;
use crate::rules::{Rule, RuleMatch, RuleSet};

/// What answers a request, if the caller may send it.
#[derive(Debug, Clone)]
pub enum Target {
    /// One of the gateway's own endpoints.
    Own {
        /// The endpoint.
        route: &'static OwnRoute,
        /// Its rates.
        rates: Arc<[Rate]>,
    },
    /// The upstream of a rule.
    Rule(Arc<Rule>),
}

impl Target {
    /// The label of the request's log line and metrics.
    pub fn handler(&self) -> Handler {
        match self {
            Target::Own { route, .. } => Handler::Own(route),
            Target::Rule(rule) => Handler::Rule(rule.clone()),
        }
    }
}

/// Finds the target of a request.
pub fn find(rules: &RuleSet, development: Development, request: &CheckedRequest<'_>) -> Result<Target, Error> {
    let method = request.head.method;
    match endpoints::find(method, &request.path) {
        EndpointMatch::Endpoint(route) => {
            return Ok(Target::Own { route, rates: rules.rates_of(route.endpoint) });
        }
        // Outside development mode these paths are forbidden with every method: a 405 would imply that another
        // method works.
        EndpointMatch::OtherMethods(_)
            if development == Development::Off && endpoints::is_for_development(&request.path) =>
        {
            return Err(Forbidden::Development.into());
        }
        EndpointMatch::OtherMethods(allow) => return Err(Error::MethodNotAllowed { allow }),
        EndpointMatch::NotFound => return Err(Error::NotFound),
        EndpointMatch::NotReserved => {}
    }
    match rules.find(method, &request.path) {
        RuleMatch::Rule(rule) => Ok(Target::Rule(rule.clone())),
        RuleMatch::OtherMethods(allow) => Err(Error::MethodNotAllowed { allow }),
        RuleMatch::NotFound => Err(Error::NotFound),
    }
}
