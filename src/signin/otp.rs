//! One-time passwords: a device is set up, bound by its first code, and its codes step a session up.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::attempt::{Attempt, reason};
use super::audit::own;
use super::session::LoggedIn;
use super::{Device, SignIn};
use crate::directory::audit::Event;
use crate::directory::factors::{Account, OtpDevice};
use crate::domain::clock::Timestamp;
use crate::domain::session::{EndCause, Session, Stage};
use crate::error::{Error, Forbidden, Part, TokenFault};
use crate::qr;
use crate::sessions::{CachedSession, SessionUpdate};

/// What somebody needs to set a device up.
pub struct OtpSetup {
    /// To type in, in base32.
    pub secret: String,
    /// The same as a link for the device.
    pub otpauth_url: String,
    /// The same as a picture.
    pub qrcode_png_base64: String,
}

/// How somebody's device stands.
pub struct OtpStatus {
    /// The device.
    pub device: OtpDevice,
    /// Until when this session is stepped up.
    pub stepped_up_until: Option<Timestamp>,
}

/// How long a half-authenticated session that has bound a device can still be told so.
const SPENT_FOR: Duration = Duration::from_secs(60);

/// A device was bound.
pub struct Bound {
    /// Until when the session is stepped up.
    pub stepped_up_until: Timestamp,
    /// A full session, for whoever had a half-authenticated one.
    pub login: Option<LoggedIn>,
}

fn account(session: &Session) -> Account<'_> {
    Account { corp_id: &session.corp_id, employee_id: &session.employee_id }
}

impl SignIn {
    /// How the caller's device stands.
    pub async fn otp_status(&self, known: &CachedSession) -> Result<OtpStatus, Error> {
        let device = self.devices.state(account(&known.session)).await?;
        let now = self.clock.now();
        let stepped_up_until = known.session.stepped_up_until.filter(|until| now < *until);
        Ok(OtpStatus { device, stepped_up_until })
    }

    /// A new secret for the caller's device. It takes the place of one that is in use only when its first code has
    /// come, and only for somebody who has just given a code of the old one.
    pub async fn otp_setup(&self, known: &CachedSession) -> Result<OtpSetup, Error> {
        let session = &known.session;
        self.may_bind_otp(session).await?;
        let begun = self.audit.record(own(session, Event::OtpSetup, "")).await?;
        let offer = self.devices.offer(account(session), &session.name).await;
        let offer = self.audited(begun, offer).await?;
        let url = offer.otpauth_url.reveal();
        let picture = qr::png(url).map_err(|fault| Error::unexpected(Part::Gateway, fault))?;
        Ok(OtpSetup {
            secret: offer.secret.reveal().clone(),
            otpauth_url: url.clone(),
            qrcode_png_base64: STANDARD.encode(picture),
        })
    }

    /// Takes the offered secret into use. A full session takes the place of a half-authenticated one: a token says what
    /// it opens, and never opens more than that.
    pub async fn otp_bind(&self, known: &CachedSession, code: &str, device: &Device) -> Result<Bound, Error> {
        let session = &known.session;
        let in_use = self.may_bind_otp(session).await?;
        let begun = self.audit.record(own(session, Event::OtpBind, "")).await?;
        let bound = self.bind_and_begin(known, in_use.as_deref(), code, device).await;
        self.audited(begun, bound).await
    }

    async fn bind_and_begin(
        &self,
        known: &CachedSession,
        in_use: Option<&str>,
        code: &str,
        device: &Device,
    ) -> Result<Bound, Error> {
        let session = &known.session;
        self.devices.bind(account(session), in_use, code).await?;
        if in_use.is_some() {
            // What the device before it has stepped up goes with it.
            self.live.step_down(&session.corp_id, &session.employee_id).await?;
        }
        if session.stage == Stage::Full {
            return Ok(Bound { stepped_up_until: self.step_up(session).await?, login: None });
        }
        match self.live.spend(&session.id, self.clock.now().plus(SPENT_FOR)).await? {
            SessionUpdate::Done(_) => self.begin_bound(session, device).await,
            SessionUpdate::NotHeld => Err(Forbidden::OtpBound.into()),
            SessionUpdate::Gone => {
                // Thrown out in this very moment: what they have bound is none of the owner's.
                self.directory.remove_otp(account(session)).await?;
                Err(Error::InvalidToken(TokenFault::Revoked))
            }
        }
    }

    /// The full session of somebody whose half-authenticated one is spent.
    async fn begin_bound(&self, half: &Session, device: &Device) -> Result<Bound, Error> {
        let employee = self.directory.employee(&half.corp_id, &half.employee_id).await?;
        let employee = employee.ok_or(Error::InvalidToken(TokenFault::Revoked))?;
        let stepped_up_until = self.clock.now().plus(self.settings.otp_valid_for);
        let mut attempt = Attempt::new(half.login_method, device).from(half.login_source);
        attempt.stepped_up_until = Some(stepped_up_until);
        attempt.password_id.clone_from(&half.password_id);
        let roles = self.roles_of(&employee).await?;
        let full = self.begin(&employee, roles, &mut attempt).await?;
        // A password that was taken away meanwhile has not found this session.
        if half.password_id.is_some() {
            let agent = self.directory.agent(account(half)).await?;
            if agent.and_then(|agent| agent.password).map(|password| password.id) != half.password_id {
                self.live.end(&full.id, EndCause::Operator).await?;
                return Err(Error::InvalidToken(TokenFault::Revoked));
            }
        }
        Ok(Bound { stepped_up_until, login: Some(self.logged_in(&full)) })
    }

    /// Takes a code of the bound device: the session is stepped up.
    pub async fn otp_verify(&self, known: &CachedSession, code: &str) -> Result<Timestamp, Error> {
        let session = &known.session;
        let bound = self.devices.state(account(session)).await?.secret.is_some();
        // Half-authenticated means that there was no device: one that is there now was bound by somebody else.
        if bound && session.stage != Stage::Full {
            return Err(Forbidden::OtpBound.into());
        }
        let record = own(session, Event::StepUp, "");
        if let Err(error) = self.devices.verify(account(session), code).await {
            self.audit.refuse(record, reason(&error)).await;
            return Err(error);
        }
        let begun = self.audit.record(record).await?;
        let stepped_up = self.step_up(session).await;
        self.audited(begun, stepped_up).await
    }

    /// Whether the caller may bind a device: always the first one, another one only freshly stepped up. Tells which
    /// secret it would take the place of.
    async fn may_bind_otp(&self, session: &Session) -> Result<Option<String>, Error> {
        let in_use = self.devices.state(account(session)).await?.secret;
        match (&in_use, session.stage) {
            (_, Stage::Spent) | (Some(_), Stage::OtpBinding) => Err(Forbidden::OtpBound.into()),
            (None, Stage::Full | Stage::OtpBinding) => Ok(in_use),
            (Some(_), Stage::Full) if session.is_stepped_up(self.clock.now()) => Ok(in_use),
            (Some(_), Stage::Full) => Err(Error::StepUpRequired),
        }
    }

    async fn step_up(&self, session: &Session) -> Result<Timestamp, Error> {
        let until = self.clock.now().plus(self.settings.otp_valid_for);
        match self.live.step_up(&session.id, until).await? {
            SessionUpdate::Done(_) => Ok(until),
            SessionUpdate::NotHeld | SessionUpdate::Gone => Err(Error::InvalidToken(TokenFault::Revoked)),
        }
    }
}
