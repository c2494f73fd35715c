//! The actor of an administrative action.

use std::borrow::Cow;

use crate::domain::session::Session;

/// Who performs an administrative action, for its audit record.
#[derive(Debug, Clone, Copy)]
pub enum Actor<'a> {
    /// A user of this machine, through the command line.
    Operator {
        /// The user id of the process that sent the command.
        uid: u32,
    },
    /// An employee with the role `admin`, over HTTP.
    Administrator(&'a Session),
}

impl<'a> Actor<'a> {
    /// The `by` column of the audit log.
    pub(super) fn name(self) -> Cow<'a, str> {
        match self {
            Actor::Operator { uid } => format!("uid {uid}").into(),
            Actor::Administrator(session) => session.employee_id.as_str().into(),
        }
    }

    /// The session that acts; empty for an operator.
    pub(super) fn session_id(self) -> &'a str {
        match self {
            Actor::Operator { .. } => "",
            Actor::Administrator(session) => session.id.as_str(),
        }
    }
}
