//! Puts down what is done to accounts and sessions: in the directory's audit log, and as a line of the log.

use std::sync::Arc;

use super::SignIn;
use super::attempt::reason;
use crate::directory::audit::{Deed, Event};
use crate::directory::{Directory, DirectoryError};
use crate::domain::session::Session;
use crate::error::{Error, chain};

/// Why a deed came to nothing that found everything so already.
pub const UNCHANGED: &str = "unchanged";

/// The audit log, for people's deeds and operators' orders alike.
#[derive(Clone)]
pub struct Audit {
    directory: Arc<dyn Directory>,
}

impl Audit {
    /// In this directory.
    pub fn new(directory: Arc<dyn Directory>) -> Self {
        Self { directory }
    }

    /// Puts a deed down before it is done: what cannot be put down is not done.
    pub async fn record<'a>(&self, deed: Deed<'a>) -> Result<Begun<'a>, DirectoryError> {
        let id = self.directory.record_deed(deed, "").await?;
        tell(deed, None);
        Ok(Begun { id, deed })
    }

    /// Puts down that a deed was refused before it could begin. It is refused whether that can be put down or not.
    pub async fn refuse(&self, deed: Deed<'_>, why: &str) {
        tell(deed, Some(why));
        missing(self.directory.record_deed(deed, why).await);
    }

    /// Puts down why a deed came to nothing.
    pub async fn came_to_nothing(&self, begun: Begun<'_>, why: &str) {
        tell(begun.deed, Some(why));
        missing(self.directory.refuse_deed(&begun.id, why).await);
    }
}

/// A deed that was put down, and may be done.
pub struct Begun<'a> {
    id: String,
    deed: Deed<'a>,
}

fn tell(deed: Deed<'_>, refused: Option<&str>) {
    let Deed { corp_id, employee_id, event, by, session_id, detail } = deed;
    tracing::info!(
        target: "deskgate::audit",
        { event = event.as_str(), employee.id = employee_id, corp.id = corp_id, by = by, session.id = session_id,
          detail = detail, refused = refused },
        "{}{}", if refused.is_some() { "came to nothing: " } else { "" }, event.words()
    );
}

fn missing<T>(put_down: Result<T, DirectoryError>) {
    if let Err(fault) = put_down {
        tracing::error!(error = %chain(&fault), "a refusal is missing in the audit log");
    }
}

/// What the owner of a session does to their own account.
pub(super) fn own<'a>(session: &'a Session, event: Event, detail: &'a str) -> Deed<'a> {
    Deed {
        corp_id: session.corp_id.as_str(),
        employee_id: session.employee_id.as_str(),
        event,
        by: session.employee_id.as_str(),
        session_id: session.id.as_str(),
        detail,
    }
}

impl SignIn {
    /// Puts down why a deed came to nothing, if it did.
    pub(super) async fn audited<T>(&self, begun: Begun<'_>, outcome: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &outcome {
            self.audit.came_to_nothing(begun, reason(error)).await;
        }
        outcome
    }
}
