//! One-time-password devices.

use std::sync::Arc;

use super::accounts::Accounts;
use super::audit::{Action, AuditTrail, AuditedResult};
use super::effect::Effect;
use super::{Actor, AdminError};
use crate::directory::Directory;
use crate::directory::factors::{Account, FactorKind};
use crate::sessions::SessionCache;
use crate::signin::devices::{Devices, OfferedSecret};

/// Administers one-time-password devices.
pub(crate) struct DeviceAdmin {
    pub(super) directory: Arc<dyn Directory>,
    pub(super) sessions: Arc<SessionCache>,
    pub(super) devices: Devices,
    pub(super) accounts: Accounts,
    pub(super) audit: AuditTrail,
}

impl AuditedResult for OfferedSecret {
    fn is_unchanged(&self) -> bool {
        false
    }
}

impl DeviceAdmin {
    /// How many secrets of devices a previous key encrypts.
    pub(crate) async fn count_old_secrets(&self) -> Result<usize, AdminError> {
        Ok(self.devices.count_old_secrets().await?)
    }

    pub(crate) async fn is_bound(&self, account: Account<'_>) -> Result<bool, AdminError> {
        self.accounts.employee(account).await?;
        Ok(self.devices.state(account).await?.secret.is_some())
    }

    /// Creates a secret for a new device. A device in use works until the new one's first code arrives.
    pub(crate) async fn offer(&self, actor: Actor<'_>, account: Account<'_>) -> Result<OfferedSecret, AdminError> {
        let change = async {
            let employee = self.accounts.employee(account).await?;
            Ok(self.devices.offer(account, &employee.name).await?)
        };
        self.audit
            .run(actor, Some(account), Action::Command("employee otp-bind (a secret is shown)".into()), change)
            .await
    }

    /// Binds the device that the last offer was for, with its first code.
    pub(crate) async fn bind(&self, actor: Actor<'_>, account: Account<'_>, code: &str) -> Result<Effect, AdminError> {
        let change = async {
            self.accounts.employee(account).await?;
            let in_use = self.devices.state(account).await?.secret;
            self.devices.bind_as_operator(account, in_use.as_deref(), code).await?;
            // Also without an old device: its removal may have been interrupted before it reached the sessions.
            self.sessions.step_down(account.corp_id, account.employee_id).await?;
            Ok(Effect::changed(0))
        };
        self.audit.run(actor, Some(account), Action::Command("employee otp-bind".into()), change).await
    }

    /// Removes the device, so that another one can be bound. Counts the sessions that lose their step-up.
    pub(crate) async fn reset(&self, actor: Actor<'_>, account: Account<'_>) -> Result<Effect, AdminError> {
        let change = async {
            self.accounts.employee(account).await?;
            let removed = self.directory.remove_otp(account).await?;
            // A lockout for wrong codes of the old device does not apply to the next one.
            self.directory.unlock(account, Some(FactorKind::Otp)).await?;
            // Even if there was no device: an interrupted command may have left sessions stepped up.
            let sessions = self.sessions.step_down(account.corp_id, account.employee_id).await?;
            Ok(Effect::from(removed).and_sessions(sessions))
        };
        self.audit.run(actor, Some(account), Action::ResetOtp, change).await
    }
}
