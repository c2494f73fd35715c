//! `deskgate secret …`

use serde::{Deserialize, Serialize};

use super::CommandOutput;
use crate::admin::{Admin, AdminError};

/// A command about the secret of a fleet.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretCommand {
    /// Counts what previous secrets encrypt.
    Status,
}

/// What is encrypted with a previous secret, and would be lost without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousSecretUse {
    /// Secrets of one-time-password devices.
    pub one_time_passwords: usize,
    /// Signing keys.
    pub signing_keys: usize,
}

impl Admin {
    pub(super) async fn execute_secret(&self, command: &SecretCommand) -> Result<CommandOutput, AdminError> {
        match command {
            SecretCommand::Status => Ok(CommandOutput::PreviousSecrets(PreviousSecretUse {
                one_time_passwords: self.devices.count_old_secrets().await?,
                signing_keys: self.keys.count_old_secrets().await?,
            })),
        }
    }
}
