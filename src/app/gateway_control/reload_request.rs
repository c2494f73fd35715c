//! Reloads that a command asks for. They are done where SIGHUP is handled, so that two never run at the same time and the service
//! manager is told.

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::admin::CommandError;
use crate::app::{ReloadReport, StartError};
use crate::config::ConfigChanges;

/// What a reload has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadSummary {
    /// The number of rules.
    pub rules: usize,
    /// Whether the rules differ from those before.
    pub rules_changed: bool,
    /// The keys of the configuration that have changed and are in force.
    pub applied: Vec<String>,
    /// The keys that have changed and take a restart.
    pub needs_restart: Vec<String>,
}

/// A reload that a command waits for.
pub struct ReloadRequest {
    answer: oneshot::Sender<Result<ReloadSummary, CommandError>>,
}

impl ReloadRequest {
    /// Tells the command what came of it.
    pub fn answer(self, reloaded: &Result<ReloadReport, StartError>) {
        let summary = match reloaded {
            Ok(ReloadReport { rules, rules_changed, changes: ConfigChanges { applied, pending } }) => {
                Ok(ReloadSummary {
                    rules: *rules,
                    rules_changed: *rules_changed,
                    applied: applied.clone(),
                    needs_restart: pending.clone(),
                })
            }
            Err(error) => Err(CommandError::Failed(error.to_string())),
        };
        // The command may have been interrupted.
        let _ = self.answer.send(summary);
    }
}

/// Asks for a reload and waits for its result.
pub(super) async fn ask(requests: &mpsc::Sender<ReloadRequest>) -> Result<ReloadSummary, CommandError> {
    let stopping = || CommandError::Failed("the gateway is shutting down".to_owned());
    let (answer, result) = oneshot::channel();
    requests.try_send(ReloadRequest { answer }).map_err(|error| match error {
        mpsc::error::TrySendError::Full(_) => CommandError::Failed("other reloads are waiting already".to_owned()),
        mpsc::error::TrySendError::Closed(_) => stopping(),
    })?;
    result.await.map_err(|_| stopping())?
}
