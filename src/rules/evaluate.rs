//! Evaluates the checks of a rule for a request. Live requests, open sockets, cases and `explain` all call the same
//! function; an [`Observer`] sees each check and cannot change the outcome.

use std::net::IpAddr;

use super::condition::{Condition, IdentityVariables, RequestVariables};
use super::matrix::MatrixAccess;
use super::{Access, Rule};
use crate::config::Development;
use crate::domain::clock::Timestamp;
use crate::domain::host::RequestHost;
use crate::domain::role::RoleName;
use crate::domain::scope::Scope;
use crate::domain::session::{Session, Stage};
use crate::error::{Error, Forbidden};

/// Everything that a rule can depend on.
#[derive(Debug, Clone, Copy)]
pub struct RuleInput<'a> {
    /// The method.
    pub method: &'a str,
    /// The path in canonical form.
    pub path: &'a str,
    /// The client's address.
    pub address: IpAddr,
    /// The host that the request names; `None` where no rule can depend on it.
    pub host: Option<RequestHost<'a>>,
    /// The caller's session; `None` without a valid token.
    pub session: Option<&'a Session>,
    /// What a rule or endpoint that requires a recent one-time password goes by.
    pub step_up: StepUp,
}

impl<'a> RuleInput<'a> {
    fn require_session(&self) -> Result<&'a Session, Error> {
        self.session.ok_or(Error::NoCredentials)
    }
}

/// What decides whether a one-time password is recent enough. The session is read only for a check that requires one: with many
/// sessions, each part of a session that a request reads is a cache miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepUp {
    /// Whether the session is stepped up at this time.
    At(Timestamp),
    /// It was when the request arrived, and it need not be any longer.
    NotRequiredAgain,
}

/// One requirement of a rule or of one of the gateway's own endpoints.
#[derive(Debug, Clone, Copy)]
pub enum Check<'a> {
    /// Development mode is on.
    Development(Development),
    /// The client is on this machine and names it by a loopback host. Otherwise a page of another site could call a
    /// development route through its visitor's browser (DNS rebinding).
    ThisMachine,
    /// The token is valid.
    Token,
    /// The session is not half-authenticated.
    Stage,
    /// The session began with more than an employee ID.
    Proven,
    /// The client's address is in one of these networks.
    Networks(&'a [ipnet::IpNet]),
    /// The active role is one of these.
    Roles(&'a [RoleName]),
    /// The matrix grants the active role this access.
    Matrix(&'a MatrixAccess),
    /// The condition holds.
    When(&'a Condition),
    /// The caller has given a one-time password recently.
    StepUp,
}

/// Sees every check that is evaluated.
pub trait Observer {
    /// A check was evaluated.
    fn on_check(&mut self, check: Check<'_>, outcome: &Result<(), Error>);
}

impl Observer for () {
    fn on_check(&mut self, _: Check<'_>, _: &Result<(), Error>) {}
}

/// What a rule grants to a request that it admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted {
    /// The scope from the matrix, if the rule has an `access`.
    pub scope: Option<Scope>,
}

/// Evaluates checks in order and stops at the first that fails.
pub fn evaluate<'a>(
    checks: impl Iterator<Item = Check<'a>>,
    input: &RuleInput<'_>,
    observer: &mut impl Observer,
) -> Result<(), Error> {
    for check in checks {
        let outcome = check.evaluate(input);
        observer.on_check(check, &outcome);
        outcome?;
    }
    Ok(())
}

impl Rule {
    /// Evaluates the rule's checks. Does not consider its mode; see [`mode_for`](Self::mode_for).
    pub fn evaluate(&self, input: &RuleInput<'_>, observer: &mut impl Observer) -> Result<Admitted, Error> {
        evaluate(self.checks(), input, observer)?;
        let scope = match (&self.access, input.session) {
            (Access::Matrix(access), Some(session)) => access.scope(&session.current_role),
            _ => None,
        };
        Ok(Admitted { scope })
    }

    /// The checks that a preflight for the upstream must pass. It carries no token, so nothing else can be evaluated.
    pub fn preflight_checks(&self) -> impl Iterator<Item = Check<'_>> {
        (!self.networks.is_empty()).then_some(Check::Networks(&self.networks)).into_iter()
    }

    /// The rule's checks, in evaluation order.
    pub fn checks(&self) -> impl Iterator<Item = Check<'_>> {
        let signed_in = (self.access != Access::Public).then_some([Check::Token, Check::Stage]);
        let networks = (!self.networks.is_empty()).then_some(Check::Networks(&self.networks));
        let roles = (!self.roles.is_empty()).then_some(Check::Roles(&self.roles));
        let matrix = match &self.access {
            Access::Matrix(access) => Some(Check::Matrix(access)),
            Access::Public | Access::SignedIn => None,
        };
        let when = self.when.as_ref().map(Check::When);
        let step_up = self.step_up.then_some(Check::StepUp);
        signed_in.into_iter().flatten().chain(networks).chain(roles).chain(matrix).chain(when).chain(step_up)
    }
}

impl Check<'_> {
    fn evaluate(&self, input: &RuleInput<'_>) -> Result<(), Error> {
        match self {
            Check::Development(Development::On) => Ok(()),
            Check::Development(Development::Off) => Err(Forbidden::Development.into()),
            Check::ThisMachine => {
                let is_local = input.address.is_loopback() && input.host.is_some_and(|host| host.is_loopback());
                if is_local { Ok(()) } else { Err(Forbidden::NotThisMachine.into()) }
            }
            Check::Token => input.require_session().map(|_| ()),
            Check::Stage => match input.require_session()?.stage {
                Stage::Full => Ok(()),
                Stage::OtpBinding | Stage::Spent => Err(Forbidden::OtpBindingOnly.into()),
            },
            Check::Proven => match input.require_session()?.is_unproven() {
                false => Ok(()),
                true => Err(Forbidden::UnprovenSession.into()),
            },
            Check::Networks(networks) => {
                let address = input.address.to_canonical();
                let inside = networks.iter().any(|network| network.contains(&address));
                if inside { Ok(()) } else { Err(Forbidden::Network(address).into()) }
            }
            Check::Roles(wanted) => {
                let active = &input.require_session()?.current_role;
                if wanted.contains(active) {
                    return Ok(());
                }
                Err(Forbidden::RoleRequired { active: active.clone(), wanted: wanted.to_vec() }.into())
            }
            Check::Matrix(access) => {
                let active = &input.require_session()?.current_role;
                match access.scope(active) {
                    Some(_) => Ok(()),
                    None => Err(Forbidden::NotGranted { active: active.clone(), access: access.to_string() }.into()),
                }
            }
            Check::When(condition) => evaluate_condition(condition, input),
            Check::StepUp => {
                let is_fresh = match input.step_up {
                    StepUp::At(now) => input.session.is_some_and(|session| session.is_stepped_up(now)),
                    StepUp::NotRequiredAgain => true,
                };
                if is_fresh { Ok(()) } else { Err(Error::StepUpRequired) }
            }
        }
    }
}

/// Fails closed: a condition that cannot be evaluated does not hold.
fn evaluate_condition(condition: &Condition, input: &RuleInput<'_>) -> Result<(), Error> {
    let request = RequestVariables { method: input.method, path: input.path, address: input.address };
    let roles: Vec<&str>;
    let identity = match input.session {
        None => None,
        Some(session) => {
            roles = session.roles.iter().map(RoleName::as_str).collect();
            Some(IdentityVariables {
                employee_id: session.employee_id.as_str(),
                name: &session.name,
                corp_id: session.corp_id.as_str(),
                department: &session.department,
                roles: &roles,
                current_role: session.current_role.as_str(),
                login_source: session.login_source.as_str(),
                login_method: session.login_method.as_str(),
            })
        }
    };
    let error = match condition.holds(identity.as_ref(), &request) {
        Ok(true) => return Ok(()),
        Ok(false) => None,
        Err(error) => Some(error),
    };
    Err(Forbidden::Condition { condition: condition.text().into(), error }.into())
}
