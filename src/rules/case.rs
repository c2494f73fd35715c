//! Cases: sample requests in rule files, each with the decision that it must get. `explain` runs them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use serde::Deserialize;

use super::evaluate::{RuleInput, StepUp};
use super::matrix::Matrix;
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::role::RoleName;
use crate::domain::scope::Scope;
use crate::domain::session::{LoginMethod, LoginSource, Session, SessionId, Stage, Version};

/// The end of time, for sample sessions that never expire.
const NEVER: Timestamp = Timestamp::from_millis(i64::MAX);

/// A request as cases and `deskgate explain` describe it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SampleRequest {
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The active role; `None` for a request without a token.
    pub role: Option<String>,
    /// The roles that the employee has; empty means the active one only.
    pub roles: Vec<String>,
    /// The client's address.
    pub address: IpAddr,
    /// The employee.
    pub employee_id: String,
    /// The employee's name.
    pub name: String,
    /// The employee's corporation.
    pub corp_id: String,
    /// The employee's department.
    pub department: String,
    /// The client in which the employee signed in.
    pub login_source: LoginSource,
    /// How the employee signed in.
    pub login_method: LoginMethod,
    /// Whether the employee has given a one-time password recently.
    pub stepped_up: bool,
    /// `Origin`. Only for `deskgate explain`: cases run without the configuration that lists the allowed ones.
    #[serde(skip)]
    pub origin: Option<String>,
    /// `Access-Control-Request-Method`, which makes an OPTIONS a preflight.
    #[serde(skip)]
    pub requested_method: Option<String>,
}

impl Default for SampleRequest {
    fn default() -> Self {
        Self {
            method: "GET".to_owned(),
            path: "/".to_owned(),
            role: None,
            roles: Vec::new(),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            employee_id: "u1001".to_owned(),
            name: String::new(),
            corp_id: "wwdemo".to_owned(),
            department: String::new(),
            login_source: LoginSource::H5,
            login_method: LoginMethod::Oauth2,
            stepped_up: false,
            origin: None,
            requested_method: None,
        }
    }
}

impl SampleRequest {
    /// The session that a token of this request would have.
    pub fn session(&self) -> Option<Session> {
        let current_role = RoleName::new(self.role.as_deref()?);
        let held = self.roles.iter().map(|role| RoleName::new(role.as_str()));
        let roles = if self.roles.is_empty() { vec![current_role.clone()] } else { held.collect() };
        Some(Session {
            id: SessionId::new("-"),
            version: Version::FIRST,
            corp_id: CorpId::new(self.corp_id.as_str()),
            employee_id: EmployeeId::new(self.employee_id.as_str()),
            name: self.name.clone(),
            department: self.department.clone(),
            avatar: String::new(),
            roles,
            current_role,
            login_method: self.login_method,
            login_source: self.login_source,
            platform_sign_in_at: None,
            stage: Stage::Full,
            stepped_up_until: self.stepped_up.then_some(NEVER),
            stepped_up_at: None,
            key_id: None,
            password_id: None,
            platform_account: None,
            new_device: false,
            issued_at: Timestamp::from_millis(0),
            expires_at: NEVER,
            address: self.address.to_string().into(),
            user_agent: Box::default(),
        })
    }

    /// The input of rules. `session` is [`SampleRequest::session`].
    pub fn input<'a>(&'a self, session: Option<&'a Session>) -> RuleInput<'a> {
        let step_up = StepUp::At(Timestamp::from_millis(0));
        RuleInput { method: &self.method, path: &self.path, address: self.address, host: None, session, step_up }
    }
}

/// A `[[case]]` as the file has it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CaseTable {
    request: SampleRequest,
    expect: ExpectTable,
}

/// The `expect` of a `[[case]]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ExpectTable {
    allow: Option<bool>,
    deny: Option<u16>,
    rule: Option<String>,
    scope: Option<String>,
    by: Option<String>,
}

impl CaseTable {
    /// Validates the table. The error describes a fault of the case itself.
    pub(super) fn compile(self, file: &str, line: usize, matrix: &Matrix) -> Result<Case, String> {
        if let Some(role) = self.request.role.iter().chain(&self.request.roles).find(|role| !matrix.knows(role)) {
            return Err(format!("request: role `{role}` is not one of {}", matrix.known()));
        }
        let code = match (self.expect.allow, self.expect.deny) {
            (Some(true), None) => 0,
            (None, Some(code)) => code,
            _ => return Err("expect: give either `allow = true` or `deny = <code>`".to_owned()),
        };
        let scope = self.expect.scope.as_deref().map(|scope| {
            let unknown = || format!("expect.scope: `{scope}` is not one of {}", Scope::WORDS.join(", "));
            Scope::parse(scope).ok_or_else(unknown)
        });
        let (rule, by) = (self.expect.rule, self.expect.by);
        let expected = CaseOutcome { code, rule, scope: scope.transpose()?, by };
        Ok(Case { file: file.to_owned(), line, request: self.request, expected })
    }
}

/// A case, ready to run.
#[derive(Debug)]
pub struct Case {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) request: SampleRequest,
    expected: CaseOutcome,
}

impl Case {
    /// Compares the decision with the expected one; the error has both. What the case leaves out is not compared.
    pub(crate) fn compare(&self, got: &CaseOutcome) -> Result<(), String> {
        let expected = CaseOutcome {
            code: self.expected.code,
            rule: self.expected.rule.clone().or_else(|| got.rule.clone()),
            scope: self.expected.scope.or(got.scope),
            by: self.expected.by.clone().or_else(|| got.by.clone()),
        };
        if expected == *got { Ok(()) } else { Err(format!("expected {expected}, got {got}")) }
    }
}

/// A decision, as far as a case can expect it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CaseOutcome {
    /// 0 for an allowed request.
    pub code: u16,
    /// The rule that decided.
    pub rule: Option<String>,
    /// The scope that the matrix granted.
    pub scope: Option<Scope>,
    /// The key of the rule that refused the request.
    pub by: Option<String>,
}

impl fmt::Display for CaseOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            0 => f.write_str("allow")?,
            code => write!(f, "deny {code}")?,
        }
        if let Some(rule) = &self.rule {
            write!(f, " by rule `{rule}`")?;
        }
        if let Some(by) = &self.by {
            write!(f, " for its `{by}`")?;
        }
        match self.scope {
            Some(scope) => write!(f, " with scope {scope}"),
            None => Ok(()),
        }
    }
}
