//! Phase 2: finds what answers a request: one of the gateway's own endpoints, or the rule with the most specific
//! path. A path that neither has is 1404.

use std::sync::Arc;

use super::arrive::{CheckedRequest, WHOLE_SERVER};
use super::cors::{PreflightAnswer, PreflightRequest};
use super::{Handler, Policy};
use crate::config::Development;
use crate::endpoints::{self, EndpointMatch, OwnRoute};
use crate::error::{Error, Forbidden};
use crate::rules::rate::Rate;
use crate::rules::{CorsHandling, Rule, RuleMatch, RuleSet};

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
    /// A preflight, or OPTIONS about the server as a whole, which the gateway answers.
    Preflight {
        /// The answer.
        answer: PreflightAnswer,
        /// What would answer the announced request.
        handler: Handler,
    },
    /// A preflight, which the upstream of a rule with `cors = "upstream"` answers.
    UpstreamPreflight(Arc<Rule>),
}

impl Target {
    /// The label of the request's log line and metrics.
    pub fn handler(&self) -> Handler {
        match self {
            Target::Own { route, .. } => Handler::Own(route),
            Target::Rule(rule) | Target::UpstreamPreflight(rule) => Handler::Rule(rule.clone()),
            Target::Preflight { handler, .. } => handler.clone(),
        }
    }
}

/// Finds the target of a request.
pub(crate) fn find(policy: &Policy<'_>, rules: &RuleSet, request: &CheckedRequest<'_>) -> Result<Target, Error> {
    if request.path == WHOLE_SERVER {
        return Ok(Target::Preflight { answer: PreflightAnswer::of_server(policy.cors), handler: Handler::None });
    }
    if let Some(preflight) = PreflightRequest::of(request.head, request.fields) {
        return find_preflight(policy, rules, &request.path, &preflight);
    }
    let method = request.head.method;
    match endpoints::find(method, &request.path) {
        EndpointMatch::Endpoint(route) => {
            return Ok(Target::Own { route, rates: rules.rates_of(route.endpoint) });
        }
        // Outside development mode these paths are forbidden with every method: a 405 would imply that another
        // method works.
        EndpointMatch::OtherMethods(_)
            if policy.development == Development::Off && endpoints::is_for_development(&request.path) =>
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

/// Finds what answers a preflight. The methods are those of the path, whatever the announced one is; the browser
/// compares them.
fn find_preflight(
    policy: &Policy<'_>,
    rules: &RuleSet,
    path: &str,
    preflight: &PreflightRequest<'_>,
) -> Result<Target, Error> {
    let own = endpoints::find(preflight.method, path);
    let rule = match own {
        EndpointMatch::NotReserved => rules.find(preflight.method, path),
        _ => RuleMatch::NotFound,
    };
    if let RuleMatch::Rule(rule) = &rule
        && rule.cors == CorsHandling::Upstream
    {
        return Ok(Target::UpstreamPreflight((*rule).clone()));
    }
    match (preflight.check_origin(policy.cors), &rule) {
        // Not for its origin: the upstream would decide about that if the rule had the method.
        (Err(_), RuleMatch::OtherMethods(allow)) if rules.leaves_cors_to_upstream(path) => {
            return Err(Error::MethodNotAllowed { allow: allow.clone() });
        }
        (checked, _) => checked?,
    }
    if policy.development == Development::Off && endpoints::is_for_development(path) {
        return Err(Forbidden::Development.into());
    }
    let (methods, handler) = match (own, rule) {
        (EndpointMatch::Endpoint(route), _) => (endpoints::methods(path), Handler::Own(route)),
        (_, RuleMatch::Rule(rule)) => (rules.methods(path), Handler::Rule(rule.clone())),
        (EndpointMatch::OtherMethods(allow), _) | (_, RuleMatch::OtherMethods(allow)) => (allow, Handler::None),
        (EndpointMatch::NotFound | EndpointMatch::NotReserved, RuleMatch::NotFound) => return Err(Error::NotFound),
    };
    Ok(Target::Preflight { answer: preflight.answer(policy.cors, methods), handler })
}
