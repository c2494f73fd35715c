//! Second phase: our own endpoint, an upstream path that a rule names, or 1404.

use std::sync::Arc;

use super::Gate;
use super::arrive::Request;
use super::record::Handler;
use crate::config::Development;
use crate::endpoints::{self, OwnLookup, OwnRoute};
use crate::error::{Error, Forbidden};
use crate::rules::{Lookup, Rule};

/// Where a request goes, if it may.
#[derive(Debug)]
pub enum Target {
    /// To one of our endpoints.
    Own(&'static OwnRoute),
    /// Along a rule to an upstream.
    Rule(Arc<Rule>),
}

impl Target {
    /// Who is in charge of the request from here on.
    pub fn handler(&self) -> Handler {
        match self {
            Target::Own(route) => Handler::Own(route),
            Target::Rule(rule) => Handler::Rule(rule.clone()),
        }
    }
}

/// Deny by default: what nobody named is not found.
pub fn find(gate: &Gate, request: &Request<'_>) -> Result<Target, Error> {
    let method = request.head.method;
    match endpoints::find(method, &request.path) {
        OwnLookup::Endpoint(route) => return Ok(Target::Own(route)),
        // Outside development mode the routes are forbidden, whatever is sent: a 405 would promise another method.
        OwnLookup::OtherMethods(_)
            if gate.development == Development::Off && endpoints::is_for_development(&request.path) =>
        {
            return Err(Forbidden::Development.into());
        }
        OwnLookup::OtherMethods(allow) => return Err(Error::MethodNotAllowed { allow }),
        OwnLookup::Nothing => return Err(Error::NotFound),
        OwnLookup::NotOurs => {}
    }
    match gate.rules.load().find(method, &request.path) {
        Lookup::Rule(rule) => Ok(Target::Rule(rule.clone())),
        Lookup::OtherMethods(allow) => Err(Error::MethodNotAllowed { allow }),
        Lookup::Nothing => Err(Error::NotFound),
    }
}
