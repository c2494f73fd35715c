//! One-time passwords: set up a device, bind it by its first code, and step a session up by later codes.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::attempt::{Attempt, reason};
use super::audit::{Audit, own_action};
use super::devices::Devices;
use super::enrolment::Enrolment;
use super::issuer::{SessionIssuer, SignInGrant};
use super::roles::Roles;
use crate::directory::Directory;
use crate::directory::audit::Event;
use crate::directory::factors::{Account, OtpDevice};
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::device::ClientDevice;
use crate::domain::session::{Session, Stage};
use crate::error::{Error, Forbidden, Part, TokenFault};
use crate::qr;
use crate::sessions::{CachedSession, SessionCache, SessionUpdate};

/// How long a half-authenticated session stays valid after it has bound a device, so that its client gets 1003 and not
/// an invalid token.
const SPENT_SESSION_LIFETIME: Duration = Duration::from_secs(60);

/// A new secret for the user's device. It has no `Debug`: it holds the secret.
#[derive(Serialize)]
pub struct OtpSetup {
    /// The secret in base32.
    secret: String,
    otpauth_url: String,
    qrcode_png_base64: String,
}

/// The state of the user's device.
pub struct OtpStatus {
    /// The device.
    pub device: OtpDevice,
    /// Set while the session is stepped up.
    pub stepped_up_until: Option<Timestamp>,
}

/// One-time passwords of signed-in users.
pub struct OneTimePasswords {
    pub(super) devices: Devices,
    pub(super) sessions: Arc<SessionCache>,
    pub(super) directory: Arc<dyn Directory>,
    pub(super) roles: Roles,
    pub(super) issuer: Arc<SessionIssuer>,
    pub(super) audit: Audit,
    pub(super) clock: Clock,
    /// How long a session stays stepped up.
    pub(super) step_up_lifetime: Duration,
    pub(super) enrolment: Enrolment,
}

fn account(session: &Session) -> Account<'_> {
    Account { corp_id: &session.corp_id, employee_id: &session.employee_id }
}

impl OneTimePasswords {
    /// The state of the caller's device.
    pub async fn status(&self, caller: &CachedSession) -> Result<OtpStatus, Error> {
        let device = self.devices.state(account(&caller.session)).await?;
        let session = &caller.session;
        let stepped_up_until = session.stepped_up_until.filter(|_| session.is_stepped_up(self.clock.now()));
        Ok(OtpStatus { device, stepped_up_until })
    }

    /// Offers a new secret for the caller's device. A bound device stays in use until the new one's first code.
    pub async fn set_up(&self, caller: &CachedSession) -> Result<OtpSetup, Error> {
        let session = &caller.session;
        self.check_may_bind(session, Event::OtpSetup).await?;
        let written = self.audit.record(own_action(session, Event::OtpSetup, "")).await?;
        let offered = self.devices.offer(account(session), &session.name).await;
        let offered = self.audit.finish(written, offered).await?;
        let url = offered.otpauth_url.reveal();
        let png = qr::png(url).map_err(|fault| Error::unexpected(Part::Gateway, fault))?;
        Ok(OtpSetup {
            secret: offered.secret.reveal().clone(),
            otpauth_url: url.clone(),
            qrcode_png_base64: STANDARD.encode(png),
        })
    }

    /// Puts the offered secret into use. It does not step the session up: the device's next code does. Returns the full
    /// session that replaces a half-authenticated one, because a token's stage never changes.
    pub async fn bind(
        &self,
        caller: &CachedSession,
        code: &str,
        device: &ClientDevice,
    ) -> Result<Option<SignInGrant>, Error> {
        let session = &caller.session;
        let in_use = self.check_may_bind(session, Event::OtpBind).await?;
        let written = self.audit.record(own_action(session, Event::OtpBind, "")).await?;
        let bound = self.bind_and_upgrade(session, in_use.as_deref(), code, device).await;
        self.audit.finish(written, bound).await
    }

    async fn bind_and_upgrade(
        &self,
        session: &Session,
        in_use: Option<&str>,
        code: &str,
        device: &ClientDevice,
    ) -> Result<Option<SignInGrant>, Error> {
        let bound = self.devices.bind(account(session), in_use, code).await?;
        if let Err(error) = self.recheck_session(session).await {
            // A session that was revoked during the request may not be the owner's, nor is the device.
            self.devices.unbind(account(session), &bound, in_use).await?;
            self.step_down(session).await?;
            return Err(error);
        }
        self.step_down(session).await?;
        match session.stage {
            Stage::Full => Ok(None),
            Stage::OtpBinding | Stage::Spent => self.issue_full_session(session, device).await.map(Some),
        }
    }

    /// Ends the step-ups of all sessions of the employee once the device in use has changed: by the device that was
    /// replaced or whose binding was undone, and by one whose removal was interrupted before it reached the sessions.
    async fn step_down(&self, session: &Session) -> Result<(), Error> {
        self.sessions.step_down(&session.corp_id, &session.employee_id).await?;
        Ok(())
    }

    /// Refuses if the session has ended by the time the device is bound. A half-authenticated one is spent by that.
    async fn recheck_session(&self, session: &Session) -> Result<(), Error> {
        if session.stage == Stage::Full {
            return self.sessions.check_live(&session.id).await;
        }
        let end = self.clock.now().plus(SPENT_SESSION_LIFETIME);
        match self.sessions.spend(&session.id, end).await? {
            SessionUpdate::Done(_) => Ok(()),
            SessionUpdate::NotAllowed | SessionUpdate::Gone => Err(Error::InvalidToken(TokenFault::Revoked)),
        }
    }

    /// Issues the full session that replaces a spent half-authenticated one. Half-authenticated sessions that bind a
    /// device began at the platform, so no password ends the new one.
    async fn issue_full_session(&self, half: &Session, device: &ClientDevice) -> Result<SignInGrant, Error> {
        let employee = self.directory.employee(&half.corp_id, &half.employee_id).await?;
        let employee = employee.ok_or(Error::InvalidToken(TokenFault::Revoked))?;
        let mut attempt = Attempt::new(half.login_method, device).with_source(half.login_source);
        attempt.platform_sign_in_at = half.platform_sign_in_at;
        attempt.platform_account.clone_from(&half.platform_account);
        let roles = self.roles.for_sign_in(&employee).await?;
        let full = self.issuer.create(&employee, roles, &mut attempt).await?;
        Ok(self.issuer.issue(&full))
    }

    /// Verifies a code of the bound device and steps the session up.
    pub async fn verify(&self, caller: &CachedSession, code: &str) -> Result<Timestamp, Error> {
        let session = &caller.session;
        let bound = self.devices.state(account(session)).await?.secret.is_some();
        // A half-authenticated session began without a device, so this one was bound by another session.
        if bound && session.stage != Stage::Full {
            return Err(Forbidden::OtpBound.into());
        }
        let record = own_action(session, Event::StepUp, "");
        let secret = match self.devices.verify(account(session), code).await {
            Ok(secret) => secret,
            Err(error) => {
                self.audit.refuse(record, reason(&error)).await;
                return Err(error);
            }
        };
        let written = self.audit.record(record).await?;
        let stepped_up = self.step_up(session, &secret).await;
        self.audit.finish(written, stepped_up).await
    }

    /// Checks whether the session may bind a device, and records a refusal. Returns the secret that would be replaced.
    async fn check_may_bind(&self, session: &Session, event: Event) -> Result<Option<String>, Error> {
        let in_use = self.devices.state(account(session)).await?.secret;
        let checked = match (&in_use, session.stage) {
            (_, Stage::Spent) | (Some(_), Stage::OtpBinding) => Err(Forbidden::OtpBound.into()),
            (None, Stage::Full | Stage::OtpBinding) => self.enrolment.check(session, self.clock.now()),
            // Only a code of the device in use steps a session up, so this is the old device's code.
            (Some(_), Stage::Full) if session.is_stepped_up(self.clock.now()) => Ok(()),
            (Some(_), Stage::Full) => Err(Error::StepUpRequired),
        };
        if let Err(error) = checked {
            self.audit.refuse(own_action(session, event, ""), reason(&error)).await;
            return Err(error);
        }
        Ok(in_use)
    }

    /// Steps a session up by a code of the device with this secret.
    async fn step_up(&self, session: &Session, secret: &str) -> Result<Timestamp, Error> {
        let now = self.clock.now();
        let until = now.plus(self.step_up_lifetime);
        match self.sessions.step_up(&session.id, now, until).await? {
            SessionUpdate::Done(_) => {}
            SessionUpdate::NotAllowed | SessionUpdate::Gone => return Err(Error::InvalidToken(TokenFault::Revoked)),
        }
        // A replacement that was bound meanwhile did not end this step-up.
        if self.devices.state(account(session)).await?.secret.as_deref() != Some(secret) {
            self.step_down(session).await?;
            return Err(Error::OtpWrong);
        }
        Ok(until)
    }
}
