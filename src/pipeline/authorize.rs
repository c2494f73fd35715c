//! Phase 5: decides whether the caller may send the request. The only place that creates a [`Permit`] for an endpoint or an
//! upstream.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock};

use http::Method;

use super::arrive::{CheckedRequest, TargetForm};
use super::credentials;
use super::head::{HttpVersion, UnwantedHeaders};
use super::observe::DecisionObserver;
use super::route::Target;
use super::trace::TraceParent;
use super::{Arrival, Caller, OwnCall, Permit, Policy, UpstreamPermit, subprotocol};
use crate::config::Development;
use crate::domain::clock::Timestamp;
use crate::domain::role::RoleName;
use crate::domain::scope::Scope;
use crate::domain::session::Session;
use crate::endpoints::{OwnAccess, OwnRoute};
use crate::error::{Error, Forbidden};
use crate::rules::evaluate::{Check, RuleInput, StepUp, evaluate};
use crate::rules::{ForwardToken, Mode, Rule};

/// Private to this file, so that no other module can create a permit.
#[derive(Debug)]
pub(super) struct Proof(());

/// Evaluates the rule or the endpoint's access for the caller.
pub(crate) fn check(
    policy: &Policy<'_>,
    target: Target,
    caller: Caller,
    request: &CheckedRequest<'_>,
    arrival: &Arrival,
    now: Timestamp,
    observer: &mut impl DecisionObserver,
) -> Result<Permit, Error> {
    let session = caller.session();
    let input = RuleInput {
        method: request.head.method,
        path: &request.path,
        address: arrival.client,
        host: request.host,
        session,
        step_up: StepUp::At(now),
    };
    match target {
        Target::Own { route, rates } => {
            evaluate(own_checks(route, policy.development), &input, observer)?;
            Ok(Permit::Own(OwnCall { route, caller, rates, _proof: Proof(()) }))
        }
        Target::Rule(rule) => {
            if request.handshake.is_some() {
                check_origin(policy.origins, request).inspect_err(|_| observer.on_refused_origin(&rule))?;
            }
            let outcome = rule.evaluate(&input, observer);
            let mode = rule.mode_for(session);
            observer.on_rule(&rule, mode, &outcome);
            let scope = match (outcome, mode) {
                (Ok(admitted), _) => admitted.scope,
                (Err(_), Mode::Shadow) => None,
                (Err(error), Mode::Enforce) => return Err(error),
            };
            Ok(Permit::Upstream(Box::new(upstream_permit(rule, caller, scope, request))))
        }
        Target::Preflight { answer, .. } => Ok(Permit::Preflight(answer)),
        Target::UpstreamPreflight(rule) => {
            evaluate(rule.preflight_checks(), &input, observer)?;
            let permit = upstream_permit(rule, Caller::Anonymous, None, request);
            let announced_method = request.fields.requested_method.and_then(|method| Method::from_bytes(method).ok());
            Ok(Permit::Upstream(Box::new(UpstreamPermit { announced_method, ..permit })))
        }
    }
}

/// The checks of one of the gateway's own endpoints, in order.
pub(crate) fn own_checks(route: &OwnRoute, development: Development) -> impl Iterator<Item = Check<'static>> {
    let development = route.is_for_development().then_some([Check::Development(development), Check::ThisMachine]);
    development.into_iter().flatten().chain(access_checks(route.access))
}

fn access_checks(access: OwnAccess) -> impl Iterator<Item = Check<'static>> {
    static ADMIN: LazyLock<[RoleName; 1]> = LazyLock::new(|| [RoleName::new("admin")]);
    let (token, stage, proven, admin, step_up) = match access {
        OwnAccess::Anyone => (false, false, false, false, false),
        OwnAccess::SignedInAnyStage => (true, false, false, false, false),
        OwnAccess::SignedIn => (true, true, false, false, false),
        OwnAccess::ProvenAnyStage => (true, false, true, false, false),
        OwnAccess::Proven => (true, true, true, false, false),
        OwnAccess::Admin => (true, true, true, true, false),
        OwnAccess::SteppedUpAdmin => (true, true, true, true, true),
    };
    let checks = [
        token.then_some(Check::Token),
        stage.then_some(Check::Stage),
        proven.then_some(Check::Proven),
        admin.then(|| Check::Roles(&*ADMIN)),
        step_up.then_some(Check::StepUp),
    ];
    checks.into_iter().flatten()
}

/// Checks a session against an endpoint's access again, after the request's body was read.
pub fn check_own(access: OwnAccess, session: &Session, now: Timestamp) -> Result<(), Error> {
    // An endpoint's access depends on the session alone.
    let input = RuleInput {
        method: "",
        path: "",
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        host: None,
        session: Some(session),
        step_up: StepUp::At(now),
    };
    evaluate(access_checks(access), &input, &mut ())
}

/// Refuses handshakes from pages of other origins (cross-site WebSocket hijacking). Programs send no `Origin`.
fn check_origin(origins: &[String], request: &CheckedRequest<'_>) -> Result<(), Error> {
    match request.fields.origin {
        Some(origin) if !origins.iter().any(|own| own.as_bytes().eq_ignore_ascii_case(origin)) => {
            Err(Forbidden::Origin.into())
        }
        _ => Ok(()),
    }
}

fn upstream_permit(
    rule: Arc<Rule>,
    caller: Caller,
    scope: Option<Scope>,
    request: &CheckedRequest<'_>,
) -> UpstreamPermit {
    let mut handshake = request.handshake.clone();
    let mut target = match request.target_form {
        TargetForm::AsSent => None,
        TargetForm::Rewritten => Some(join(&request.path, request.query)),
    };
    if let Some(handshake) = &mut handshake {
        handshake.path = request.path.to_string();
        let keeps = rule.forward_token == ForwardToken::AsSent;
        handshake.offer(subprotocol::entries(&request.fields.websocket_protocols), keeps);
        if !keeps && let Some(query) = request.query.filter(|query| has_token(query)) {
            target = Some(join(&request.path, without_token(query).as_deref()));
        }
    }
    UpstreamPermit {
        caller,
        scope,
        assertion: None,
        target,
        unwanted: UnwantedHeaders {
            // Outside a handshake the header has no meaning and may carry a token.
            subprotocol: !request.fields.websocket_protocols.is_empty() && request.handshake.is_none(),
            ..request.fields.unwanted
        },
        is_bodyless_get: is_bodyless_get(request),
        trace: request.fields.traceparent.and_then(TraceParent::parse),
        handshake,
        announced_method: None,
        rule,
        _proof: Proof(()),
    }
}

fn is_bodyless_get(request: &CheckedRequest<'_>) -> bool {
    let (head, fields) = (request.head, request.fields);
    let is_bodyless = match head.version {
        HttpVersion::Http10 => false,
        HttpVersion::Http11 => {
            let has_body = fields.content_length.is_some() || fields.transfer_encoding.is_some();
            !has_body && !fields.hop_by_hop && !fields.unwanted.cookie_crumbs
        }
        HttpVersion::Http2 => !head.stream_goes_on,
    };
    is_bodyless && head.method == "GET" && request.handshake.is_none() && fields.expect.is_none()
}

fn has_token(query: &str) -> bool {
    query.split('&').any(|pair| credentials::query_token(pair).is_some())
}

fn without_token(query: &str) -> Option<String> {
    let kept: Vec<&str> = query.split('&').filter(|pair| credentials::query_token(pair).is_none()).collect();
    (!kept.is_empty()).then(|| kept.join("&"))
}

fn join(path: &str, query: Option<&str>) -> String {
    match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    }
}
