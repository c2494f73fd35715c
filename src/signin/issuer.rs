//! Issues sessions: writes the login log, creates the session and mints its token.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::attempt::Attempt;
use super::login_log::LoginLog;
use super::roles::Roles;
use crate::directory::Directory;
use crate::directory::factors::Account;
use crate::domain::clock::Clock;
use crate::domain::device::{self, ClientDevice};
use crate::domain::employee::{Employee, Standing};
use crate::domain::role::{self, RoleName};
use crate::domain::secret::{Secret, random_name};
use crate::domain::session::{EndCause, LoginMethod, LoginSource, Session, SessionId, Stage, Version};
use crate::error::{Error, Forbidden, TokenFault};
use crate::metrics::Metrics;
use crate::sessions::SessionCache;
use crate::token::Tokens;

/// Most browsers of an employee that are compared with the current one; more than anyone uses in half a year.
const MAX_KNOWN_BROWSERS: usize = 200;

/// A new access token and the identity that it stands for.
#[derive(Debug, Clone, Serialize)]
pub struct SignInGrant {
    /// The access token.
    #[serde(serialize_with = "Secret::hand_out")]
    pub token: Secret<String>,
    pub(crate) token_type: &'static str,
    pub(crate) expires_in: u64,
    pub(crate) expires_at: String,
    pub(crate) employee_id: String,
    pub(crate) name: String,
    pub(crate) roles: Vec<RoleName>,
    pub(crate) current_role: RoleName,
    pub(crate) corp_id: String,
    pub(crate) login_method: LoginMethod,
    pub(crate) login_source: LoginSource,
    pub(crate) department: String,
    pub(crate) avatar: String,
    /// Left out for a fully authenticated session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stage: Option<Stage>,
    /// Failed attempts since the last sign-in with a password; left out if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed_tries: Option<u32>,
}

/// Creates sessions and mints their tokens, for every sign-in service.
pub(super) struct SessionIssuer {
    pub(super) sessions: Arc<SessionCache>,
    pub(super) directory: Arc<dyn Directory>,
    pub(super) roles: Roles,
    pub(super) tokens: Arc<Tokens>,
    pub(super) login_log: Arc<LoginLog>,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<Metrics>,
    pub(super) token_lifetime: Duration,
}

impl SessionIssuer {
    /// Creates a session. The login log is written first: if that write fails, so does the sign-in.
    pub(super) async fn create(
        &self,
        employee: &Employee,
        roles: Vec<RoleName>,
        attempt: &mut Attempt<'_>,
    ) -> Result<Session, Error> {
        attempt.set_proved(&employee.corp_id, &employee.employee_id);
        let session = self.record_and_store(employee, roles, attempt).await?;
        let session = self.recheck_employee(session).await?;
        self.login_log.count(attempt, "success");
        Ok(session)
    }

    /// Reads the employee again after the session is stored. A role revoked, an employee disabled or a link removed while
    /// the session was being created did not reach it; all change the directory before they look for sessions, so this
    /// read sees the change.
    async fn recheck_employee(&self, session: Session) -> Result<Session, Error> {
        let (corp_id, employee_id) = (&session.corp_id, &session.employee_id);
        self.directory.queue_recheck(Account { corp_id, employee_id }).await?;
        let employee = self.directory.employee(corp_id, employee_id).await?;
        let roles = self.roles.effective(corp_id, employee_id).await?;
        if !employee.as_ref().is_some_and(|employee| employee.standing == Standing::Active) {
            self.sessions.end(&session.id, EndCause::of_barred(employee.as_ref())).await?;
            return Err(Forbidden::Disabled.into());
        }
        if roles.is_empty() {
            self.sessions.end(&session.id, EndCause::RolesLost).await?;
            return Err(Forbidden::NoRole.into());
        }
        if let Some(account) = &session.platform_account {
            let link = self.roles.approved_link(account).await?;
            if !link.is_some_and(|link| link.leads_to(corp_id, employee_id)) {
                self.sessions.end(&session.id, EndCause::Unlinked).await?;
                return Err(Forbidden::NotAnEmployee.into());
            }
        }
        if roles == session.roles {
            return Ok(session);
        }
        self.roles.sync_sessions(corp_id, employee_id).await?;
        let updated = self.sessions.session(&session.id, self.clock.now()).await?;
        updated.map(|cached| cached.session.clone()).ok_or(Error::InvalidToken(TokenFault::Revoked))
    }

    async fn record_and_store(
        &self,
        employee: &Employee,
        roles: Vec<RoleName>,
        attempt: &Attempt<'_>,
    ) -> Result<Session, Error> {
        let Attempt { method, device, .. } = *attempt;
        let source = attempt.source.unwrap_or(LoginSource::H5);
        if employee.standing == Standing::Disabled {
            return Err(Forbidden::Disabled.into());
        }
        let current_role = role::highest(&roles).cloned().ok_or(Forbidden::NoRole)?;
        let now = self.clock.now();
        let (key_id, key_end) = self.tokens.signing(now);
        let end = now.plus(self.token_lifetime);
        let session = Session {
            id: SessionId::new(random_name(32)),
            version: Version::FIRST,
            corp_id: employee.corp_id.clone(),
            employee_id: employee.employee_id.clone(),
            name: employee.name.clone(),
            department: employee.department.clone(),
            avatar: employee.avatar.clone(),
            roles,
            current_role,
            login_method: method,
            login_source: source,
            platform_sign_in_at: method.is_platform_sign_in().then(|| attempt.platform_sign_in_at.unwrap_or(now)),
            stage: attempt.stage,
            stepped_up_until: attempt.stepped_up_until,
            stepped_up_at: attempt.stepped_up_until.map(|_| now),
            issued_at: now,
            expires_at: key_end.map_or(end, |key_end| end.min(key_end)),
            key_id: Some(key_id),
            password_id: attempt.password_id.clone(),
            platform_account: attempt.platform_account.clone(),
            new_device: self.is_new_device(employee, device).await?,
            address: device.address.as_str().into(),
            user_agent: device.user_agent.as_str().into(),
        };
        self.login_log.record_success(attempt).await?;
        self.sessions.create(&session).await?;
        self.metrics.sessions_issued.with_label_values(&[method.as_str()]).inc();
        tracing::info!(
            target: "deskgate::audit",
            { request.id = &*device.request_id, employee.id = session.employee_id.as_str(), corp.id = session.corp_id.as_str(),
              session.id = session.id.as_str(), login.method = method.as_str(), login.source = source.as_str(), client.address = &*device.address,
              platform.account = session.platform_account.as_ref().map(tracing::field::display) },
            "signed in"
        );
        Ok(session)
    }

    /// Whether the login log has no sign-in of the employee from such a device. Compares browser and system, because
    /// the full `User-Agent` changes with every browser version.
    async fn is_new_device(&self, employee: &Employee, device: &ClientDevice) -> Result<bool, Error> {
        let account = Account { corp_id: &employee.corp_id, employee_id: &employee.employee_id };
        let known = self.directory.browsers_of(account, MAX_KNOWN_BROWSERS).await?;
        let current = device::describe(&device.user_agent);
        Ok(!known.iter().any(|user_agent| device::describe(user_agent) == current))
    }

    /// Mints the token of a session.
    pub(super) fn mint(&self, session: &Session) -> String {
        self.tokens.mint(session, self.clock.now())
    }

    /// Mints the token of a session that another request created; `None` if the session has ended.
    pub(super) async fn mint_again(&self, id: &SessionId) -> Result<Option<Secret<String>>, Error> {
        let cached = self.sessions.session(id, self.clock.now()).await?;
        Ok(cached.map(|cached| Secret::new(self.mint(&cached.session))))
    }

    /// Mints the token of a new session and describes its identity.
    pub(super) fn issue(&self, session: &Session) -> SignInGrant {
        SignInGrant {
            token: Secret::new(self.mint(session)),
            token_type: "Bearer",
            expires_in: self.clock.now().seconds_until(session.expires_at),
            expires_at: session.expires_at.iso8601(),
            employee_id: session.employee_id.to_string(),
            name: session.name.clone(),
            roles: session.roles.clone(),
            current_role: session.current_role.clone(),
            corp_id: session.corp_id.to_string(),
            login_method: session.login_method,
            login_source: session.login_source,
            department: session.department.clone(),
            avatar: session.avatar.clone(),
            stage: (session.stage != Stage::Full).then_some(session.stage),
            failed_tries: None,
        }
    }
}

#[cfg(test)]
mod tests;
