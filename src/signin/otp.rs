//! One-time passwords: a device is set up, bound by its first code, and its codes step a session up.
//!
//! A try is charged to the account before the code is looked at, so that many tries at once, from many places, are
//! counted like one after the other. A code that fits is used up for the whole fleet by the directory.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::SignIn;
use super::totp::{Code, OtpSecret, Step};
use crate::directory::factors::{Account, OtpDevice, Taken, Tried};
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::qr_image;
use crate::domain::session::{Session, Stage};
use crate::error::{Error, Forbidden, Part, TokenFault};
use crate::store::live::{Known, Switched};

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

fn account(session: &Session) -> Account<'_> {
    Account { corp_id: &session.corp_id, employee_id: &session.employee_id }
}

/// What ties a closed secret to its owner.
pub(super) fn about(corp_id: &CorpId, employee_id: &EmployeeId) -> String {
    format!("otp:{corp_id}/{employee_id}")
}

fn about_owner(session: &Session) -> String {
    about(&session.corp_id, &session.employee_id)
}

impl SignIn {
    /// How the caller's device stands.
    pub async fn otp_status(&self, known: &Known) -> Result<OtpStatus, Error> {
        let device = self.directory.otp_device(account(&known.session)).await?;
        let now = self.clock.now();
        let stepped_up_until = known.session.stepped_up_until.filter(|until| now < *until);
        Ok(OtpStatus { device, stepped_up_until })
    }

    /// A new secret for the caller's device. It takes the place of one that is in use only when its first code has
    /// come, and only for somebody who has just given a code of the old one.
    pub async fn otp_setup(&self, known: &Known) -> Result<OtpSetup, Error> {
        let session = &known.session;
        self.may_bind_otp(session).await?;
        let secret = OtpSecret::random();
        let closed = self.vault.close(secret.bytes(), &about_owner(session));
        self.directory.offer_otp(account(session), &closed).await?;
        let name = format!("{} ({})", session.name, session.employee_id);
        let url = secret.url(&self.settings.otp_issuer, &name);
        let picture = qr_image::png(url.reveal()).map_err(|fault| Error::unexpected(Part::Gateway, fault))?;
        Ok(OtpSetup {
            secret: secret.base32().reveal().clone(),
            otpauth_url: url.reveal().clone(),
            qrcode_png_base64: STANDARD.encode(picture),
        })
    }

    /// Takes the offered secret into use. A half-authenticated session is a full one from here on.
    pub async fn otp_bind(&self, known: &Known, code: &str) -> Result<Timestamp, Error> {
        let session = &known.session;
        self.may_bind_otp(session).await?;
        let device = self.directory.otp_device(account(session)).await?;
        let pending = device.pending.ok_or(Forbidden::OtpNotOffered)?;
        let step = self.try_code(session, &pending, code).await?;
        match self.directory.bind_otp(account(session), &pending, step.number()).await? {
            Taken::No => return Err(Forbidden::OtpNotOffered.into()),
            Taken::Yes => self.forgive_otp(account(session)).await?,
        }
        tracing::info!(
            target: "deskgate::audit",
            { employee.id = session.employee_id.as_str(), session.id = session.id.as_str() },
            "a one-time-password device was bound"
        );
        self.step_up(session).await
    }

    /// Takes a code of the bound device: the session is stepped up.
    pub async fn otp_verify(&self, known: &Known, code: &str) -> Result<Timestamp, Error> {
        let session = &known.session;
        let device = self.directory.otp_device(account(session)).await?;
        let secret = device.secret.ok_or(Forbidden::OtpNotBound)?;
        // Half-authenticated means that there was no device: one that is there now was bound by somebody else.
        if session.stage == Stage::OtpBinding {
            return Err(Forbidden::OtpBound.into());
        }
        let step = self.try_code(session, &secret, code).await?;
        match self.directory.use_otp(account(session), step.number()).await? {
            Taken::No => return Err(Error::OtpWrong),
            Taken::Yes => self.forgive_otp(account(session)).await?,
        }
        self.step_up(session).await
    }

    /// Whether the caller may bind a device: always the first one, another one only freshly stepped up.
    async fn may_bind_otp(&self, session: &Session) -> Result<(), Error> {
        let bound = self.directory.otp_device(account(session)).await?.secret.is_some();
        match (bound, session.stage) {
            (false, _) => Ok(()),
            (true, Stage::OtpBinding) => Err(Forbidden::OtpBound.into()),
            (true, Stage::Full) if session.is_stepped_up(self.clock.now()) => Ok(()),
            (true, Stage::Full) => Err(Error::StepUpRequired),
        }
    }

    /// The step of a code that fits. Charged to the account first.
    async fn try_code(&self, session: &Session, closed: &str, code: &str) -> Result<Step, Error> {
        self.charge_otp(account(session)).await?;
        let opened = self.vault.open(closed, &about_owner(session)).and_then(|bytes| OtpSecret::from_bytes(&bytes));
        let secret =
            opened.ok_or_else(|| Error::unexpected(Part::Directory, "a one-time-password secret cannot be opened"))?;
        let fits = Code::read(code).and_then(|code| secret.check(&code, self.clock.now()));
        if fits.is_none() {
            tracing::info!(
                target: "deskgate::audit",
                { employee.id = session.employee_id.as_str(), session.id = session.id.as_str() },
                "a one-time password was wrong"
            );
        }
        fits.ok_or(Error::OtpWrong)
    }

    pub(super) async fn charge_otp(&self, whose: Account<'_>) -> Result<(), Error> {
        loop {
            let (mut lockout, seen) = self.directory.lockout(Tried::Otp, whose).await?;
            lockout.charge(self.clock.now()).map_err(|locked| Error::Locked { retry_after: locked.retry_after })?;
            if self.directory.put_lockout(Tried::Otp, whose, &lockout, seen).await? == Taken::Yes {
                return Ok(());
            }
        }
    }

    pub(super) async fn forgive_otp(&self, whose: Account<'_>) -> Result<(), Error> {
        self.forgive(Tried::Otp, whose).await
    }

    pub(super) async fn forgive(&self, tried: Tried, whose: Account<'_>) -> Result<(), Error> {
        loop {
            let (mut lockout, seen) = self.directory.lockout(tried, whose).await?;
            lockout.on_success();
            if self.directory.put_lockout(tried, whose, &lockout, seen).await? == Taken::Yes {
                return Ok(());
            }
        }
    }

    async fn step_up(&self, session: &Session) -> Result<Timestamp, Error> {
        let until = self.clock.now().plus(self.settings.otp_valid_for);
        match self.live.step_up(&session.id, until).await? {
            Switched::Done(_) => Ok(until),
            Switched::NotHeld | Switched::Gone => Err(Error::InvalidToken(TokenFault::Revoked)),
        }
    }
}
