//! Cases: requests with the answer that a rule file expects. They run whenever rules are loaded.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use serde::Deserialize;

use super::RuleSet;
use super::judge::{Facts, StepUp};
use super::matrix::{Matrix, Scope};
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::role::RoleName;
use crate::domain::session::{LoginMethod, LoginSource, Session, SessionId, Stage, Version};

/// A request as cases and `deskgate explain` describe one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SampleRequest {
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The active role; without one nobody is signed in.
    pub role: Option<String>,
    /// The roles held; without any, the active one.
    pub roles: Vec<String>,
    /// The client's address.
    pub address: IpAddr,
    /// Who asks.
    pub employee_id: String,
    /// Their name.
    pub name: String,
    /// Their corporation.
    pub corp_id: String,
    /// Their department.
    pub department: String,
    /// Where they signed in.
    pub login_source: LoginSource,
    /// How they signed in.
    pub login_method: LoginMethod,
    /// Whether they gave a one-time password lately.
    pub stepped_up: bool,
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
        }
    }
}

impl SampleRequest {
    /// The session of whoever asks.
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
            stage: Stage::Full,
            stepped_up_until: None,
            key_id: None,
            password_id: None,
            new_device: false,
            issued_at: Timestamp::from_millis(0),
            expires_at: Timestamp::from_millis(i64::MAX),
            address: self.address.to_string(),
            user_agent: String::new(),
        })
    }

    /// What rules look at. `session` is [`SampleRequest::session`].
    pub fn facts<'a>(&'a self, session: Option<&'a Session>) -> Facts<'a> {
        let step_up = if self.stepped_up && session.is_some() { StepUp::Fresh } else { StepUp::Stale };
        Facts { method: &self.method, path: &self.path, address: self.address, session, step_up }
    }
}

/// What a case expects.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Expected {
    allow: Option<bool>,
    deny: Option<u16>,
    rule: Option<String>,
    scope: Option<String>,
    by: Option<String>,
}

/// A `[[case]]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Case {
    request: SampleRequest,
    expect: Expected,
}

/// An answer, as far as a case can expect it.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// 0 when it is let through.
    code: u16,
    rule: Option<String>,
    scope: Option<Scope>,
    /// Which key of the rule refused it.
    by: Option<String>,
}

impl fmt::Display for Outcome {
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

impl Case {
    /// What is wrong with the case itself.
    pub(super) fn fault(&self, rules: &RuleSet, matrix: &Matrix) -> Option<String> {
        if let Some(role) = self.request.role.iter().chain(&self.request.roles).find(|role| !matrix.knows(role)) {
            return Some(format!("request: role `{role}` is not one of {}", matrix.known()));
        }
        match (self.expect.allow, self.expect.deny) {
            (Some(true), None) | (None, Some(_)) => {}
            _ => return Some("expect: give either `allow = true` or `deny = <code>`".to_owned()),
        }
        if let Some(scope) = &self.expect.scope
            && Scope::parse(scope).is_none()
        {
            return Some(format!("expect.scope: `{scope}` is not one of {}", Scope::WORDS.join(", ")));
        }
        self.run(rules).err()
    }

    /// Runs the case; when it fails: expected, got, and why.
    fn run(&self, rules: &RuleSet) -> Result<(), String> {
        let explained = rules.explain(&self.request, 0);
        let got = Outcome {
            code: explained.answer.code,
            rule: explained.answer.rule.clone(),
            scope: explained.answer.scope.as_deref().and_then(Scope::parse),
            by: explained.answer.by.map(str::to_owned),
        };
        let expected = Outcome {
            code: self.expect.deny.unwrap_or(0),
            rule: self.expect.rule.clone().or_else(|| got.rule.clone()),
            scope: self.expect.scope.as_deref().map_or(got.scope, Scope::parse),
            by: self.expect.by.clone().or_else(|| got.by.clone()),
        };
        if expected == got {
            return Ok(());
        }
        Err(format!("the case fails: expected {expected}, got {got}\n{}", explained.to_text()))
    }
}
