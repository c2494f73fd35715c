//! Whether a rule admits a request. One function, for live requests, cases and explanations alike: whoever
//! wants to know why passes a [`Observer`], and cannot get another answer by it.

use std::net::IpAddr;

use super::condition::{Condition, IdentityFacts, RequestFacts};
use super::matrix::{MatrixAccess, Scope};
use super::{Access, Rule};
use crate::domain::clock::Timestamp;
use crate::domain::role::RoleName;
use crate::domain::session::{Session, Stage};
use crate::error::{Error, Forbidden};

/// Everything that a rule may look at.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The method.
    pub method: &'a str,
    /// The path in its one form.
    pub path: &'a str,
    /// The client's address.
    pub address: IpAddr,
    /// Who asks; nobody without a valid token.
    pub session: Option<&'a Session>,
    /// Whether a one-time password was given lately.
    pub step_up: StepUp,
}

impl<'a> Facts<'a> {
    /// The facts of a session now.
    pub fn step_up_of(session: Option<&Session>, now: Timestamp) -> StepUp {
        if session.is_some_and(|session| session.is_stepped_up(now)) { StepUp::Fresh } else { StepUp::Stale }
    }

    /// The session, for a rule that has made sure of one.
    fn signed_in(&self) -> Result<&'a Session, Error> {
        self.session.ok_or(Error::NoCredentials)
    }
}

/// Whether a one-time password was given lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepUp {
    /// Yes.
    Fresh,
    /// No, or too long ago.
    Stale,
}

/// One thing that a rule asks for, in the order in which it is asked for.
#[derive(Debug, Clone, Copy)]
pub enum Check<'a> {
    /// A valid token.
    Token,
    /// A token that is not half-authenticated.
    Stage,
    /// An address in one of these networks.
    Networks(&'a [ipnet::IpNet]),
    /// One of these as active role.
    Roles(&'a [RoleName]),
    /// A grant in the matrix.
    Matrix(&'a MatrixAccess),
    /// A condition.
    When(&'a Condition),
    /// A fresh one-time password.
    StepUp,
}

/// Follows a judgement check by check.
pub trait Observer {
    /// A check was made.
    fn on_check(&mut self, check: Check<'_>, outcome: &Result<(), Error>);
}

/// Nobody wants to know.
impl Observer for () {
    fn on_check(&mut self, _: Check<'_>, _: &Result<(), Error>) {}
}

/// What an admitted request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted {
    /// What the matrix granted, if it was asked.
    pub scope: Option<Scope>,
}

impl Rule {
    /// Whether this rule admits a request; the refusal when not.
    pub fn judge(&self, facts: &Facts<'_>, watch: &mut impl Observer) -> Result<Admitted, Error> {
        for check in self.checks() {
            let outcome = check.make(facts);
            watch.on_check(check, &outcome);
            outcome?;
        }
        let scope = match (&self.access, facts.session) {
            (Access::Matrix(access), Some(session)) => access.scope(&session.current_role),
            _ => None,
        };
        Ok(Admitted { scope })
    }

    /// What this rule asks for, in order.
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
    fn make(&self, facts: &Facts<'_>) -> Result<(), Error> {
        match self {
            Check::Token => facts.signed_in().map(|_| ()),
            Check::Stage => match facts.signed_in()?.stage {
                Stage::Full => Ok(()),
                Stage::OtpBinding | Stage::Spent => Err(Forbidden::OtpBindingOnly.into()),
            },
            Check::Networks(networks) => {
                let address = facts.address.to_canonical();
                let inside = networks.iter().any(|network| network.contains(&address));
                if inside { Ok(()) } else { Err(Forbidden::Network(address).into()) }
            }
            Check::Roles(wanted) => {
                let active = &facts.signed_in()?.current_role;
                if wanted.contains(active) {
                    return Ok(());
                }
                Err(Forbidden::RoleRequired { active: active.clone(), wanted: wanted.to_vec() }.into())
            }
            Check::Matrix(access) => {
                let active = &facts.signed_in()?.current_role;
                match access.scope(active) {
                    Some(_) => Ok(()),
                    None => Err(Forbidden::NotGranted { active: active.clone(), access: access.to_string() }.into()),
                }
            }
            Check::When(condition) => holds(condition, facts),
            Check::StepUp => match facts.step_up {
                StepUp::Fresh => Ok(()),
                StepUp::Stale => Err(Error::StepUpRequired),
            },
        }
    }
}

/// A condition that cannot be judged does not hold.
fn holds(condition: &Condition, facts: &Facts<'_>) -> Result<(), Error> {
    let request = RequestFacts { method: facts.method, path: facts.path, address: facts.address };
    let roles: Vec<&str>;
    let identity = match facts.session {
        None => None,
        Some(session) => {
            roles = session.roles.iter().map(RoleName::as_str).collect();
            Some(IdentityFacts {
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
    let trouble = match condition.holds(identity.as_ref(), &request) {
        Ok(true) => return Ok(()),
        Ok(false) => None,
        Err(trouble) => Some(trouble),
    };
    Err(Forbidden::Condition { condition: condition.text().into(), trouble }.into())
}
