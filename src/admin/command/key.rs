//! `deskgate key …`

use serde::{Deserialize, Serialize};

use super::CommandOutput;
use crate::admin::keys::{KeyStart, SessionUpdates, UpdateProgress};
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
                let note = note(created.sessions, "the gateway is still shortening sessions of the replaced key");
                Ok(CommandOutput::KeyCreated { key: created.key, sessions: created.sessions.count, note })
            }
            KeyCommand::Remove { id } => {
                let removed = self.keys.remove(actor, &KeyId::new(id)).await?;
                let unfinished = "the key's tokens are refused from now on; the gateway is still ending their sessions";
                Ok(CommandOutput::Changed {
                    sessions: removed.sessions.count,
                    note: note(removed.sessions, unfinished),
                })
            }
        }
    }
}

fn note(sessions: SessionUpdates, unfinished: &str) -> Option<String> {
    (sessions.progress == UpdateProgress::Unfinished).then(|| unfinished.to_owned())
}
