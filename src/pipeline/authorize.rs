//! Fifth phase: may this caller do this? The only place that makes a [`Permit`].

use super::arrive::{Request, TargetForm};
use super::credentials;
use super::forward::TraceId;
use super::head::{HttpVersion, Unwanted};
use super::route::Target;
use super::{Arrival, Caller, Gate, OwnCall, Permit, UpstreamPermit, record};
use crate::domain::clock::Timestamp;
use crate::domain::role::RoleName;
use crate::domain::session::{Session, Stage};
use crate::endpoints::OwnAccess;
use crate::error::{Error, Forbidden};
use crate::rules::judge::Facts;
use crate::rules::matrix::Scope;
use crate::rules::{ForwardToken, Mode, Rule};

/// Cannot be made outside this file, and so neither can a permit.
#[derive(Debug)]
pub(super) struct Proof(());

/// Judges a caller by the rule.
pub fn check(
    gate: &Gate,
    target: Target,
    caller: Caller,
    request: &Request<'_>,
    arrival: &Arrival,
    now: Timestamp,
) -> Result<Permit, Error> {
    match target {
        Target::Own(route) => {
            if let Caller::SignedIn(known) = &caller {
                check_own(route.access, &known.session, now)?;
            }
            Ok(Permit::Own(OwnCall { route, caller, _proof: Proof(()) }))
        }
        Target::Rule(rule) => {
            if request.handshake.is_some() {
                check_origin(gate, request).inspect_err(|_| rule.metrics.denied.inc())?;
            }
            let scope = judge(&rule, &caller, request, arrival, now)?;
            Ok(Permit::Upstream(pass(rule, caller, scope, request)))
        }
    }
}

/// Whether a session opens an endpoint of ours.
pub fn check_own(access: OwnAccess, session: &Session, now: Timestamp) -> Result<(), Error> {
    let wanted = match access {
        OwnAccess::Anyone | OwnAccess::SignedInAnyStage => return Ok(()),
        OwnAccess::SignedIn => None,
        OwnAccess::Admin | OwnAccess::SteppedUpAdmin => Some("admin"),
    };
    if session.stage != Stage::Full {
        return Err(Forbidden::OtpBindingOnly.into());
    }
    if let Some(wanted) = wanted
        && session.current_role.as_str() != wanted
    {
        let active = session.current_role.clone();
        return Err(Forbidden::RoleRequired { active, wanted: vec![RoleName::new(wanted)] }.into());
    }
    if access == OwnAccess::SteppedUpAdmin && !session.is_stepped_up(now) {
        return Err(Error::StepUpRequired);
    }
    Ok(())
}

/// What the rule says; in shadow mode it is only told.
fn judge(
    rule: &Rule,
    caller: &Caller,
    request: &Request<'_>,
    arrival: &Arrival,
    now: Timestamp,
) -> Result<Option<Scope>, Error> {
    let session = caller.session();
    let facts = Facts {
        method: request.head.method,
        path: &request.path,
        address: arrival.client,
        session,
        step_up: Facts::step_up_of(session, now),
    };
    let judged = rule.judge(&facts, &mut ());
    match (judged, rule.mode) {
        (Ok(admitted), Mode::Enforce) => {
            rule.metrics.allowed.inc();
            Ok(admitted.scope)
        }
        (Err(error), Mode::Enforce) => {
            rule.metrics.denied.inc();
            Err(error)
        }
        (Ok(admitted), Mode::Shadow) => {
            rule.metrics.shadow_allowed.inc();
            Ok(admitted.scope)
        }
        (Err(error), Mode::Shadow) => {
            rule.metrics.shadow_denied.inc();
            record::shadow(arrival, &rule.name, &error);
            Ok(None)
        }
    }
}

/// A page of another site must not open sockets in its visitor's name. Programs send no origin.
fn check_origin(gate: &Gate, request: &Request<'_>) -> Result<(), Error> {
    match request.fields.origin {
        Some(origin) if !gate.origins.iter().any(|own| own.as_bytes().eq_ignore_ascii_case(origin)) => {
            Err(Forbidden::Origin.into())
        }
        _ => Ok(()),
    }
}

fn pass(rule: std::sync::Arc<Rule>, caller: Caller, scope: Option<Scope>, request: &Request<'_>) -> UpstreamPermit {
    let mut handshake = request.handshake.clone();
    let mut target = match request.target_form {
        TargetForm::AsSent => None,
        TargetForm::Rewritten => Some(join(&request.path, request.query)),
    };
    if let Some(handshake) = &mut handshake {
        handshake.path = request.path.to_string();
        let keeps = rule.forward_token == ForwardToken::AsSent;
        handshake.offer(credentials::entries(&request.fields.websocket_protocols), keeps);
        if !keeps && let Some(query) = request.query.filter(|query| has_token(query)) {
            target = Some(join(&request.path, without_token(query).as_deref()));
        }
    }
    UpstreamPermit {
        caller,
        scope,
        assertion: None,
        target,
        unwanted: Unwanted {
            // Without a handshake it says nothing, and may hold a token.
            subprotocol: !request.fields.websocket_protocols.is_empty() && request.handshake.is_none(),
            ..request.fields.unwanted
        },
        is_bodyless_get: is_bodyless_get(request),
        trace: request.fields.traceparent.and_then(TraceId::given),
        handshake,
        rule,
        _proof: Proof(()),
    }
}

fn is_bodyless_get(request: &Request<'_>) -> bool {
    let (head, fields) = (request.head, request.fields);
    let has_body = fields.content_length.is_some() || fields.transfer_encoding.is_some() || fields.expect.is_some();
    head.method == "GET"
        && head.version == HttpVersion::Http11
        && request.handshake.is_none()
        && !has_body
        && !fields.hop_by_hop
        && !fields.unwanted.cookie_crumbs
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
