//! One-time-password devices, for their owners and for operators' commands alike.
//!
//! An attempt is charged to the account before its code is checked, so that parallel attempts are counted one by one. The
//! directory uses up a correct code for all gateways.

use std::sync::Arc;

use super::lockouts::Lockouts;
use super::totp::{OtpSecret, Step, TotpCode};
use crate::directory::factors::{Account, FactorKind, OtpDevice};
use crate::directory::{Directory, DirectoryError};
use crate::domain::clock::Clock;
use crate::domain::secret::Secret;
use crate::domain::write::WriteOutcome;
use crate::error::{Error, Forbidden, Part};
use crate::token::vault::Vault;

/// A new secret, not in use until the device's first code.
pub struct OfferedSecret {
    /// The secret in base32.
    pub secret: Secret<String>,
    /// The secret as an `otpauth:` URL.
    pub otpauth_url: Secret<String>,
}

/// The one-time-password devices of all employees.
#[derive(Clone)]
pub struct Devices {
    directory: Arc<dyn Directory>,
    vault: Arc<Vault>,
    clock: Clock,
    issuer: String,
    lockouts: Lockouts,
}

/// The associated data that ties an encrypted secret to its owner.
fn associated_data(account: Account<'_>) -> String {
    format!("otp:{}/{}", account.corp_id, account.employee_id)
}

/// Encrypts a device's secret for another directory; `None` if `from` cannot decrypt it.
pub fn encrypt_again(from: &Vault, to: &Vault, account: Account<'_>, encrypted: &str) -> Option<String> {
    let context = associated_data(account);
    Some(to.encrypt(&from.decrypt(encrypted, &context)?, &context))
}

impl Devices {
    /// `issuer` is the name that the device shows beside the code.
    pub fn new(directory: Arc<dyn Directory>, vault: Arc<Vault>, clock: Clock, issuer: String) -> Self {
        let lockouts = Lockouts::new(directory.clone(), clock.clone());
        Self { directory, vault, clock, issuer, lockouts }
    }

    /// Re-encrypts secrets of older keys with the current key and logs the result. Runs at start, before any request.
    pub async fn renew_secrets(&self) -> Result<(), DirectoryError> {
        let (mut renewed, mut lost) = (0_usize, 0_usize);
        for (corp_id, employee_id, encrypted) in self.directory.otp_secrets_unlike(&self.vault.current_prefix()).await?
        {
            let account = Account { corp_id: &corp_id, employee_id: &employee_id };
            let Some(plain) = self.vault.decrypt(&encrypted, &associated_data(account)) else {
                lost += 1;
                continue;
            };
            let current = self.vault.encrypt(&plain, &associated_data(account));
            if self.directory.renew_otp(account, &encrypted, &current).await? == WriteOutcome::Applied {
                renewed += 1;
            }
        }
        if self.vault.has_older_keys() && lost == 0 {
            // An audit line, because an operator waits for it whatever `log.level` is.
            tracing::info!(
                target: "deskgate::audit",
                renewed,
                "all one-time-password secrets are encrypted with the current key: remove keys/vault.key and otp.old_key_files; they \
                 need no previous secret of server.old_secret_files"
            );
        }
        if lost > 0 {
            tracing::warn!(
                lost,
                "cannot decrypt some one-time-password secrets: add their key to otp.old_key_files, or remove the devices"
            );
        }
        Ok(())
    }

    /// How many secrets an older key encrypts.
    pub async fn count_old_secrets(&self) -> Result<usize, DirectoryError> {
        Ok(self.directory.otp_secrets_unlike(&self.vault.current_prefix()).await?.len())
    }

    /// The state of an account's device.
    pub async fn state(&self, account: Account<'_>) -> Result<OtpDevice, Error> {
        Ok(self.directory.otp_device(account).await?)
    }

    /// Offers a new secret. A secret in use stays until the first code of the new one.
    pub async fn offer(&self, account: Account<'_>, name: &str) -> Result<OfferedSecret, Error> {
        let secret = OtpSecret::random();
        let encrypted = self.vault.encrypt(secret.bytes(), &associated_data(account));
        self.directory.offer_otp(account, &encrypted).await?;
        let name = format!("{name} ({})", account.employee_id);
        Ok(OfferedSecret { secret: secret.base32(), otpauth_url: secret.url(&self.issuer, &name) })
    }

    /// Puts the offered secret into use and returns it, encrypted. `in_use` is the secret that the caller saw in use,
    /// which it replaces.
    pub async fn bind(&self, account: Account<'_>, in_use: Option<&str>, code: &str) -> Result<String, Error> {
        let pending = self.pending(account).await?;
        let step = self.try_code(account, &pending, code).await?;
        self.put_into_use(account, pending, in_use, step).await
    }

    /// As [`Devices::bind`], for an operator: wrong codes in the operator's terminal do not lock the employee, and a
    /// lockout does not stop the operator.
    pub async fn bind_as_operator(
        &self,
        account: Account<'_>,
        in_use: Option<&str>,
        code: &str,
    ) -> Result<String, Error> {
        let pending = self.pending(account).await?;
        let step = self.step_of(account, &pending, code)?.ok_or(Error::OtpWrong)?;
        self.put_into_use(account, pending, in_use, step).await
    }

    async fn pending(&self, account: Account<'_>) -> Result<String, Error> {
        Ok(self.state(account).await?.pending.ok_or(Forbidden::OtpNotOffered)?)
    }

    async fn put_into_use(
        &self,
        account: Account<'_>,
        pending: String,
        in_use: Option<&str>,
        step: Step,
    ) -> Result<String, Error> {
        if self.directory.bind_otp(account, &pending, in_use, step.number()).await? == WriteOutcome::Conflict {
            return Err(Forbidden::OtpNotOffered.into());
        }
        self.lockouts.clear(FactorKind::Otp, account).await?;
        Ok(pending)
    }

    /// Undoes a bind: `bound` gives way to the secret that it had replaced, if any.
    pub(super) async fn unbind(
        &self,
        account: Account<'_>,
        bound: &str,
        replaced: Option<&str>,
    ) -> Result<WriteOutcome, Error> {
        Ok(self.directory.unbind_otp(account, bound, replaced).await?)
    }

    /// Verifies a code of the bound device, uses it up, and returns the device's encrypted secret.
    pub async fn verify(&self, account: Account<'_>, code: &str) -> Result<String, Error> {
        let secret = self.state(account).await?.secret.ok_or(Forbidden::OtpNotBound)?;
        let step = self.try_code(account, &secret, code).await?;
        match self.directory.use_otp(account, &secret, step.number()).await? {
            WriteOutcome::Conflict => return Err(Error::OtpWrong),
            WriteOutcome::Applied => self.lockouts.clear(FactorKind::Otp, account).await?,
        }
        Ok(secret)
    }

    /// Whether a code fits the bound device's encrypted secret; uses it up if so. Does not charge the account: for
    /// attempts that were charged as a password.
    pub(super) async fn use_up(&self, account: Account<'_>, encrypted: &str, code: &str) -> Result<bool, Error> {
        let Some(step) = self.step_of(account, encrypted, code)? else { return Ok(false) };
        Ok(self.directory.use_otp(account, encrypted, step.number()).await? == WriteOutcome::Applied)
    }

    /// The time step of a correct code. Charges the account before it checks the code.
    async fn try_code(&self, account: Account<'_>, encrypted: &str, code: &str) -> Result<Step, Error> {
        self.lockouts.charge(FactorKind::Otp, account).await?;
        self.step_of(account, encrypted, code)?.ok_or(Error::OtpWrong)
    }

    fn step_of(&self, account: Account<'_>, encrypted: &str, code: &str) -> Result<Option<Step>, Error> {
        let bytes = self.vault.decrypt(encrypted, &associated_data(account));
        let secret = bytes
            .and_then(|bytes| OtpSecret::from_bytes(&bytes))
            .ok_or_else(|| Error::unexpected(Part::Directory, "cannot decrypt a one-time-password secret"))?;
        Ok(TotpCode::read(code).and_then(|code| secret.check(&code, self.clock.now())))
    }
}
