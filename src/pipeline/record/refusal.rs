//! Describes a refused request for `deskgate explain --request-id`: which check refused it, what that check looked at, and what
//! to do about it.

use std::borrow::Cow;

use super::{AccessLogEntry, Outcome, finished, shown_host};
use crate::domain::clock::Timestamp;
use crate::domain::finished_request::{RefusedCaller, RefusedRequest};
use crate::domain::role::RoleName;
use crate::domain::session::Session;
use crate::error::{BadRequest, Error, Forbidden, Part, TokenFault};
use crate::pipeline::{Handler, Phase};
use crate::rules::{Access, Rule};

/// Describes a request that was refused, failed or was cut; `None` for any other.
pub(super) fn describe<'a, 'e: 'a>(
    entry: &AccessLogEntry<'e>,
    outcome: &'a Outcome,
    now: Timestamp,
) -> Option<RefusedRequest<'a>> {
    let (check, next_step, rate_limit) = match (entry.error.or(entry.incomplete), entry.cut) {
        (Some(error), _) => (failed_check(error), next_step(error), rate_limit(error)),
        (None, Some(_)) => (None, "The request was permitted and was ended later. The reason says why.", None),
        (None, None) if entry.shown_code.is_some() => (
            None,
            "The browser got a page or a redirect about the error; `deskgate employee logins` has the reason.",
            None,
        ),
        (None, None) => return None,
    };
    let rule = match entry.handler {
        Handler::Rule(rule) => Some(&**rule),
        Handler::Own(_) | Handler::None => None,
    };
    let has_path_fault = matches!(entry.error, Some(Error::BadRequest(BadRequest::Path(_))));
    let is_cross_origin = matches!(check, Some("origin"));
    Some(RefusedRequest {
        request: finished(entry, outcome, now),
        phase: entry.phase.as_str().into(),
        check: check.map(Into::into),
        wants: check.and_then(|check| wanted(check, rule?)).map(Into::into),
        rule_place: rule.map(|rule| rule.place.as_str().into()),
        peer_address: entry.arrival.peer,
        host: shown_host(entry),
        caller: entry.caller.session().map(|session| caller(session, rule, now)),
        rate_limit,
        is_repeatable: entry.error.is_some()
            && !is_cross_origin
            && (has_path_fault || matches!(entry.phase, Phase::Route | Phase::Authorize | Phase::Limit)),
        next_step: next_step.into(),
    })
}

fn caller<'a>(session: &'a Session, rule: Option<&Rule>, now: Timestamp) -> RefusedCaller<'a> {
    // Personal data that only a condition can look at.
    let is_read = rule.is_some_and(|rule| rule.when.is_some());
    let read = |text: &'a str| Cow::Borrowed(if is_read { text } else { "" });
    RefusedCaller {
        current_role: session.current_role.as_str().into(),
        roles: session.roles.iter().map(|role| role.as_str().into()).collect(),
        name: read(&session.name),
        department: read(&session.department),
        login_method: session.login_method.as_str().into(),
        login_source: session.login_source.as_str().into(),
        stepped_up: session.is_stepped_up(now),
    }
}

/// What the rule requires in this check.
fn wanted(check: &str, rule: &Rule) -> Option<String> {
    match check {
        "networks" => Some(rule.networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        "roles" => Some(rule.roles.iter().map(RoleName::as_str).collect::<Vec<_>>().join(", ")),
        "access" => match &rule.access {
            Access::Matrix(access) => Some(access.to_string()),
            Access::Public | Access::SignedIn => None,
        },
        "when" => rule.when.as_ref().map(|condition| condition.text().to_owned()),
        "step_up" => Some("a recent one-time password".to_owned()),
        "rate" => Some(rule.rates.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
        "methods" => Some(rule.methods.join(", ")),
        "websocket.max_per_employee" => rule.most_sockets.map(|most| most.to_string()),
        _ => None,
    }
}

fn rate_limit(error: &Error) -> Option<u32> {
    match error {
        Error::RateLimited { exceeded, .. } => Some(exceeded.window.limit),
        _ => None,
    }
}

/// The check that failed, by its key in rule files where it has one.
fn failed_check(error: &Error) -> Option<&'static str> {
    match error {
        Error::NoCredentials | Error::InvalidToken(_) => Some("signed_in"),
        Error::Forbidden(reason) => match reason {
            Forbidden::RoleRequired { .. } => Some("roles"),
            Forbidden::NotGranted { .. } => Some("access"),
            Forbidden::Network(_) => Some("networks"),
            Forbidden::Condition { .. } => Some("when"),
            Forbidden::OtpBindingOnly => Some("stage"),
            Forbidden::UnprovenSession => Some("proven"),
            Forbidden::Development => Some("development"),
            Forbidden::NotThisMachine => Some("this_machine"),
            Forbidden::Origin | Forbidden::CrossOrigin => Some("origin"),
            _ => None,
        },
        Error::StepUpRequired => Some("step_up"),
        Error::RateLimited { .. } => Some("rate"),
        Error::TooManySockets { .. } => Some("websocket.max_per_employee"),
        Error::NotFound => Some("path"),
        Error::MethodNotAllowed { .. } => Some("methods"),
        Error::UnknownHost => Some("host"),
        _ => None,
    }
}

/// What an operator can do about it. No `_` arm, so that every new error gets its own advice.
fn next_step(error: &Error) -> &'static str {
    match error {
        Error::NoCredentials => {
            "The request had no token that the gateway could find. The client must sign in and send `Authorization: Bearer TOKEN`."
        }
        Error::InvalidToken(fault) => next_step_for_token(*fault),
        Error::Forbidden(reason) => next_step_for_forbidden(reason),
        Error::BadRequest(BadRequest::Path(_)) => {
            "The path could mean different things to the gateway and to an upstream. The client must send it in plain form."
        }
        Error::BadRequest(BadRequest::ForwardedForEntry(_) | BadRequest::ForwardedForLength(_)) => {
            "The proxy in front of the gateway forwards an address that cannot be read; check its configuration."
        }
        Error::BadRequest(BadRequest::PlainHttp) => "The listener expects TLS; the client must use https.",
        Error::BadRequest(_) => "The client must send another request; the reason says what is wrong with this one.",
        Error::NotFound => "No rule has this path. Add one to the folder `rules.dir`, or correct the client's URL.",
        Error::NoSession => "The caller has no session with this ID; `deskgate session list --employee ID` lists them.",
        Error::MethodNotAllowed { .. } => "A rule has this path with other methods only; add the method to `methods`.",
        Error::RequestTimeout => {
            "The client sent its request too slowly; see `limits.head_deadline` and `limits.body_rate`."
        }
        Error::BodyTooLarge => "The body is larger than `limits.body_bytes`, the limit of the gateway's own endpoints.",
        Error::TargetTooLong => "The target is longer than `limits.target_bytes` allows.",
        Error::HeadTooLarge => "The head is larger than `limits.head_bytes` or `limits.headers` allow.",
        Error::UnsupportedMediaType => "The client must send JSON with `Content-Type: application/json`.",
        Error::UnknownHost => "The `Host` is none of the gateway's; add it to `server.hosts` if clients may use it.",
        Error::WebSocketVersion => "The client must speak WebSocket version 13.",
        Error::StepUpRequired => {
            "The employee must confirm with a one-time password (POST /api/auth/otp-verify) and repeat the request."
        }
        Error::SignInTooOld { .. } => "The employee must sign in through the messaging platform again.",
        Error::PasswordWrong | Error::PasswordNotSet | Error::OldPasswordMissing | Error::OldPasswordWrong => {
            "See the agent with `deskgate agent list`; `deskgate agent password ID` sets a new password."
        }
        Error::OtpWrong => "The one-time password was wrong or used before. Check the clock of the employee's device.",
        Error::Locked { .. } => "Wait until the lock ends, or unlock the account with `deskgate employee unlock ID`.",
        Error::RateLimited { .. } => {
            "The client must slow down. If the limit is too low, raise `rate` in the rule or the `[[endpoint]]` entry."
        }
        Error::TooManySockets { .. } => {
            "The employee has as many WebSockets open as the rule's `websocket.max_per_employee` allows."
        }
        Error::TooManyStreams { .. } => {
            "The client has too many requests open at a time; see `limits.connections_per_address`."
        }
        Error::Overloaded { .. } | Error::Saturated { .. } => {
            "The gateway had more to do than it could. See `deskgate status` and the metric `limit_reached_total`."
        }
        Error::UpstreamBusy { .. } => "The upstream has as many requests as `upstreams.NAME.max_requests` allows.",
        Error::UpstreamFailed(_) | Error::UpstreamTimeout => {
            "The request was permitted and the upstream failed. `deskgate upstream list` shows its addresses."
        }
        Error::Unavailable { part, .. } | Error::Unexpected { part, .. } => match part {
            Part::Store | Part::Directory => "`deskgate status` shows the state of store and directory.",
            Part::Platform => "The messaging platform did not respond; `deskgate status` shows its circuit breaker.",
            Part::PlatformSetup => {
                "The messaging platform rejects the gateway's credentials; check the section [platform]."
            }
            Part::Gateway => {
                "`deskgate status` shows the state of the gateway; its log has more about this request ID."
            }
        },
        Error::PlatformCircuitOpen { .. } => {
            "The messaging platform has failed repeatedly; `deskgate status` shows its circuit breaker."
        }
    }
}

fn next_step_for_token(fault: TokenFault) -> &'static str {
    match fault {
        TokenFault::Expired => "The token has expired; the client must sign in again.",
        TokenFault::Revoked => {
            "The session has ended; the client must sign in again. `deskgate employee events ID` shows who ended it."
        }
        TokenFault::UnknownKey => {
            "The token was signed with a key that this gateway does not have; compare `deskgate key list` on all gateways."
        }
        TokenFault::Audience => {
            "The token is for another issuer or audience; compare `server.public_url` with the gateway that issued it."
        }
        TokenFault::Malformed | TokenFault::Header | TokenFault::Claims | TokenFault::Signature => {
            "This gateway has not issued the token. Check what the client sends; many of these may be an attack."
        }
    }
}

fn next_step_for_forbidden(reason: &Forbidden) -> &'static str {
    match reason {
        Forbidden::RoleRequired { .. } => {
            "The employee must switch to one of these roles, if they have it; `deskgate role grant ID ROLE` grants one."
        }
        Forbidden::NotGranted { .. } => {
            "The employee must switch to another role, or the matrix (`matrix.toml`) must grant this access to the role."
        }
        Forbidden::Network(_) => {
            "If the client should be admitted, add its network to the rule. If the address is a proxy's, add that to \
             `server.trusted_proxies`."
        }
        Forbidden::Condition { .. } => "Compare the rule's condition with what it looked at.",
        Forbidden::OtpBindingOnly => "The employee must first set up a one-time-password device.",
        Forbidden::UnprovenSession => "The employee must sign in through the messaging platform or with a password.",
        Forbidden::Origin => "If pages of this origin may open WebSockets, add it to `websocket.origins`.",
        Forbidden::CrossOrigin => "If pages of this origin may call the gateway, add it to `cors.origins`.",
        Forbidden::Development | Forbidden::NotThisMachine => {
            "Development routes answer on this machine only, and only with `server.development = true`."
        }
        Forbidden::RoleNotHeld(_) | Forbidden::NoRole => {
            "`deskgate role list` shows who has which role; `deskgate role grant ID ROLE` grants one."
        }
        Forbidden::Disabled => "`deskgate employee enable ID` lets the employee sign in again.",
        Forbidden::LinkPending => "`deskgate employee link approve` approves the link.",
        _ => "The reason says what is missing; `deskgate employee logins` has refused sign-ins.",
    }
}

#[cfg(test)]
mod tests;
