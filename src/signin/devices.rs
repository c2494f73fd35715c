//! One-time-password devices themselves: for their owners and for operators' commands alike.
//!
//! A try is charged to the account before the code is looked at, so that many tries at once, from many places, are
//! counted like one after the other. A code that fits is used up for the whole fleet by the directory.

use std::sync::Arc;

use super::totp::{Code, OtpSecret, Step};
use super::tries::Tries;
use crate::directory::factors::{Account, FactorKind, OtpDevice};
use crate::directory::{Directory, DirectoryError};
use crate::domain::clock::Clock;
use crate::domain::secret::Secret;
use crate::domain::write::WriteOutcome;
use crate::error::{Error, Forbidden, Part};
use crate::token::vault::Vault;

/// A secret that waits for its first code.
pub struct Offer {
    /// To type in, in base32.
    pub secret: Secret<String>,
    /// The same as a link for the device.
    pub otpauth_url: Secret<String>,
}

/// Everybody's devices.
#[derive(Clone)]
pub struct Devices {
    directory: Arc<dyn Directory>,
    vault: Arc<Vault>,
    clock: Clock,
    issuer: String,
    tries: Tries,
}

/// What ties a closed secret to its owner.
fn about(whose: Account<'_>) -> String {
    format!("otp:{}/{}", whose.corp_id, whose.employee_id)
}

impl Devices {
    /// `issuer` is what the device shows beside the code.
    pub fn new(directory: Arc<dyn Directory>, vault: Arc<Vault>, clock: Clock, issuer: String) -> Self {
        let tries = Tries::new(directory.clone(), clock.clone());
        Self { directory, vault, clock, issuer, tries }
    }

    /// Closes secrets that an older key has closed with the current one, and says how that went. For the start, when
    /// nobody uses them.
    pub async fn renew_secrets(&self) -> Result<(), DirectoryError> {
        let (mut renewed, mut lost) = (0_usize, 0_usize);
        for (corp_id, employee_id, closed) in self.directory.otp_secrets_unlike(&self.vault.current_prefix()).await? {
            let whose = Account { corp_id: &corp_id, employee_id: &employee_id };
            let Some(plain) = self.vault.decrypt(&closed, &about(whose)) else {
                lost += 1;
                continue;
            };
            let anew = self.vault.encrypt(&plain, &about(whose));
            if self.directory.renew_otp(whose, &closed, &anew).await? == WriteOutcome::Applied {
                renewed += 1;
            }
        }
        if self.vault.has_older_keys() && lost == 0 {
            // As a line that comes however quiet the log is: somebody waits for it.
            tracing::info!(
                target: "deskgate::audit",
                renewed,
                "all one-time-password secrets are closed with the current key: keys/vault.key and otp.old_key_files can go"
            );
        }
        if lost > 0 {
            tracing::warn!(
                lost,
                "one-time-password secrets cannot be opened: name their key in otp.old_key_files, or remove the devices"
            );
        }
        Ok(())
    }

    /// How somebody's device stands.
    pub async fn state(&self, whose: Account<'_>) -> Result<OtpDevice, Error> {
        Ok(self.directory.otp_device(whose).await?)
    }

    /// A new secret for somebody's device. One that is in use stays until the new one's first code has come.
    pub async fn offer(&self, whose: Account<'_>, name: &str) -> Result<Offer, Error> {
        let secret = OtpSecret::random();
        let closed = self.vault.encrypt(secret.bytes(), &about(whose));
        self.directory.offer_otp(whose, &closed).await?;
        let name = format!("{name} ({})", whose.employee_id);
        Ok(Offer { secret: secret.base32(), otpauth_url: secret.url(&self.issuer, &name) })
    }

    /// Takes the offered secret into use in the place of the one that the caller has seen in use, if any.
    pub async fn bind(&self, whose: Account<'_>, in_use: Option<&str>, code: &str) -> Result<(), Error> {
        let pending = self.state(whose).await?.pending.ok_or(Forbidden::OtpNotOffered)?;
        let step = self.try_code(whose, &pending, code).await?;
        if self.directory.bind_otp(whose, &pending, in_use, step.number()).await? == WriteOutcome::Conflict {
            return Err(Forbidden::OtpNotOffered.into());
        }
        self.tries.forgive(FactorKind::Otp, whose).await
    }

    /// Takes a code of the bound device and uses it up.
    pub async fn verify(&self, whose: Account<'_>, code: &str) -> Result<(), Error> {
        let secret = self.state(whose).await?.secret.ok_or(Forbidden::OtpNotBound)?;
        let step = self.try_code(whose, &secret, code).await?;
        match self.directory.use_otp(whose, &secret, step.number()).await? {
            WriteOutcome::Conflict => Err(Error::OtpWrong),
            WriteOutcome::Applied => self.tries.forgive(FactorKind::Otp, whose).await,
        }
    }

    /// Whether a code is of the bound device whose closed secret this is; it is used up then. Not charged: for where
    /// the try was charged as something else.
    pub(super) async fn use_up(&self, whose: Account<'_>, closed: &str, code: &str) -> Result<bool, Error> {
        let Some(step) = self.step_of(whose, closed, code)? else { return Ok(false) };
        Ok(self.directory.use_otp(whose, closed, step.number()).await? == WriteOutcome::Applied)
    }

    /// The step of a code that fits. Charged to the account first.
    async fn try_code(&self, whose: Account<'_>, closed: &str, code: &str) -> Result<Step, Error> {
        self.tries.charge(FactorKind::Otp, whose).await?;
        self.step_of(whose, closed, code)?.ok_or(Error::OtpWrong)
    }

    fn step_of(&self, whose: Account<'_>, closed: &str, code: &str) -> Result<Option<Step>, Error> {
        let opened = self.vault.decrypt(closed, &about(whose)).and_then(|bytes| OtpSecret::from_bytes(&bytes));
        let secret =
            opened.ok_or_else(|| Error::unexpected(Part::Directory, "a one-time-password secret cannot be opened"))?;
        Ok(Code::read(code).and_then(|code| secret.check(&code, self.clock.now())))
    }
}
