//! `deskgate key …`

use serde::{Deserialize, Serialize};

use super::CommandOutput;
use crate::admin::keys::KeyStart;
use crate::admin::{Actor, Admin, AdminError};
use crate::domain::session::KeyId;

/// A command about signing keys.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyCommand {
    /// Lists keys.
    List,
    /// Creates a key that replaces the signing one.
    Rotate {
        /// When the new key starts to sign.
        start: KeyStart,
    },
    /// Removes a key; its tokens are refused from then on.
    Remove {
        /// The key's ID.
        id: String,
    },
}

impl Admin {
    pub(super) async fn execute_key(&self, actor: Actor<'_>, command: KeyCommand) -> Result<CommandOutput, AdminError> {
        match command {
            KeyCommand::List => Ok(CommandOutput::Keys(self.keys.list().await)),
            KeyCommand::Rotate { start } => {
                let created = self.keys.rotate(actor, start).await?;
                Ok(CommandOutput::KeyCreated { key: created.key, sessions: created.sessions })
            }
            KeyCommand::Remove { id } => Ok(self.keys.remove(actor, &KeyId::new(id)).await?.into()),
        }
    }
}
