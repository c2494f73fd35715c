//! Identifies users at the messaging platform: turns a code into a member and a member into an employee of the directory.

use std::sync::Arc;
use std::time::Duration;

use super::attempt::Attempt;
use super::codes::{AuthorizationCodes, CodeUse};
use super::membership::{self, Membership};
use super::platform_call::measured;
use super::roles::Roles;
use crate::directory::{Directory, EmployeeProfile};
use crate::domain::employee::{CorpId, Employee, Standing};
use crate::domain::link::{Link, PlatformAccount, PlatformUserId};
use crate::error::{BadRequest, Error, Forbidden, Part};
use crate::metrics::Metrics;
use crate::platform::{AuthorizeRequest, Consent, MemberStatus, Parameter, Person, Platform, PlatformError, Profile};

/// The user behind a platform code.
pub(super) enum PlatformUser {
    Employee(Employee),
    /// A member of a connected corporation who is not linked to an employee.
    Unbound(UnregisteredMember),
}

/// A member of a connected corporation who has neither an approved link nor a record in the directory.
pub(super) struct UnregisteredMember {
    pub(super) account: PlatformAccount,
    pub(super) name: String,
}

/// The messaging platform as an identity provider.
pub(super) struct IdentityProvider {
    pub(super) platform: Arc<dyn Platform>,
    pub(super) codes: Arc<AuthorizationCodes>,
    pub(super) directory: Arc<dyn Directory>,
    pub(super) membership: Arc<Membership>,
    pub(super) roles: Roles,
    pub(super) metrics: Arc<Metrics>,
    pub(super) main_corp: CorpId,
}

impl IdentityProvider {
    /// Refuses while the platform's circuit breaker is open: a user sent there now would only come back to an error.
    pub(super) fn check_available(&self) -> Result<(), Error> {
        match self.platform.circuit_open_for() {
            Some(retry_after) => Err(Error::PlatformCircuitOpen { retry_after }),
            None => Ok(()),
        }
    }

    /// The platform URL that starts an authorization.
    pub(super) fn authorize_url(&self, request: AuthorizeRequest<'_>) -> String {
        self.platform.authorize_url(request).into()
    }

    /// Whether a callback's parameters grant a code.
    pub(super) fn consent<'q>(&self, parameter: Parameter<'_, 'q>) -> Consent<'q> {
        self.platform.consent(parameter)
    }

    /// Exchanges a code for the user. Creates or updates the employee of a member of the main corporation, and disables
    /// one whom the platform calls inactive.
    pub(super) async fn identify(&self, code: &str, attempt: &mut Attempt<'_>) -> Result<PlatformUser, Error> {
        let identify = self.call("identify", self.platform.identify(code));
        let person = self.codes.exchange(code, attempt.device, identify).await?;
        let (corp_id, employee_id) = match &person {
            Person::Member { employee_id } => (&self.main_corp, employee_id),
            Person::Linked { corp_id, employee_id } => (corp_id, employee_id),
            Person::Outsider => return Err(Forbidden::NotAnEmployee.into()),
        };
        attempt.set_proved(corp_id, employee_id);
        let profile = self.call("profile", self.platform.profile(&person)).await;
        let profile = match &person {
            // The platform reveals little or nothing about members of connected corporations: no reason to refuse.
            Person::Linked { .. } => profile.unwrap_or_else(|_| Profile::undisclosed(MemberStatus::OutOfSight)),
            _ => profile?,
        };
        if let Person::Linked { corp_id, employee_id } = &person {
            let user_id = PlatformUserId::new(employee_id.as_str());
            let account = PlatformAccount { corp_id: corp_id.clone(), user_id };
            if let Some(link) = self.roles.approved_link(&account).await? {
                return self.linked_employee(link, profile.status, attempt).await.map(PlatformUser::Employee);
            }
            if self.directory.employee(corp_id, employee_id).await?.is_none() {
                return Ok(PlatformUser::Unbound(UnregisteredMember { account, name: profile.name }));
            }
        }
        let known = self.directory.employee(corp_id, employee_id).await?;
        match &known {
            Some(employee) => self.membership.admit(employee, profile.status).await?,
            None => membership::admit_new(profile.status)?,
        }
        let status = profile.status;
        let profile = EmployeeProfile {
            corp_id,
            employee_id,
            name: &profile.name,
            department: &profile.department,
            avatar: &profile.avatar,
        };
        let employee = require_active(self.directory.upsert_employee(profile).await?)?;
        if known.is_none() {
            self.membership.apply(&employee, status).await?;
        }
        Ok(PlatformUser::Employee(employee))
    }

    /// The employee of an approved link. The platform's profile describes the account, so the employee's stays.
    async fn linked_employee(
        &self,
        link: Link,
        status: MemberStatus,
        attempt: &mut Attempt<'_>,
    ) -> Result<Employee, Error> {
        attempt.set_proved(&link.corp_id, &link.employee_id);
        attempt.platform_account = Some(link.account.clone());
        let find = || self.directory.employee(&link.corp_id, &link.employee_id);
        let employee = find().await?.ok_or(Forbidden::NotAnEmployee)?;
        self.membership.admit_linked(&link, &employee, status).await?;
        // Read again: `admit_linked` may have enabled the employee.
        require_active(find().await?.ok_or(Forbidden::NotAnEmployee)?)
    }

    /// Exchanges a code of an agent's sign-in for an employee; refuses a member without an employee account.
    pub(super) async fn identify_employee(&self, code: &str, attempt: &mut Attempt<'_>) -> Result<Employee, Error> {
        self.codes.claim(code, CodeUse::Agent, attempt.device).await?;
        match self.identify(code, attempt).await? {
            PlatformUser::Employee(employee) => Ok(employee),
            PlatformUser::Unbound(_) => Err(Forbidden::NotAnEmployee.into()),
        }
    }

    async fn call<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, PlatformError>>,
    ) -> Result<T, Error> {
        measured(&self.metrics, name, call).await.map_err(client_error)
    }

    /// The remaining time for which the circuit is open, if it is.
    pub(super) fn circuit_open_for(&self) -> Option<Duration> {
        self.platform.circuit_open_for()
    }

    /// Updates the metrics of the platform's access token and circuit.
    pub(super) fn measure(&self) {
        self.metrics.platform_circuit_open.set(self.circuit_open_for().is_some().into());
        let age = self.platform.credential_age().unwrap_or_default();
        self.metrics.platform_token_age.set(age.as_secs_f64());
    }
}

/// Refuses a disabled employee.
pub(super) fn require_active(employee: Employee) -> Result<Employee, Error> {
    match employee.standing {
        Standing::Active => Ok(employee),
        Standing::Disabled => Err(Forbidden::Disabled.into()),
    }
}

/// What the client is told about a platform error.
fn client_error(error: PlatformError) -> Error {
    match error {
        PlatformError::InvalidCode => BadRequest::SignInCode.into(),
        PlatformError::UnknownMember => Forbidden::NotAnEmployee.into(),
        PlatformError::NotVisible => Forbidden::NotVisible.into(),
        PlatformError::CircuitOpen { retry_after } => Error::PlatformCircuitOpen { retry_after },
        PlatformError::Configuration { .. } => Error::unexpected(Part::PlatformSetup, error),
        other => Error::unexpected(Part::Platform, other),
    }
}
