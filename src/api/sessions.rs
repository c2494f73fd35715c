//! `GET` and `DELETE /api/auth/sessions`, `DELETE /api/auth/sessions/{id}`: one's own sessions.

use serde::Serialize;

use crate::domain::clock::Timestamp;
use crate::domain::device;
use crate::domain::session::{LoginMethod, LoginSource, Session};
use crate::error::Error;
use crate::sessions::CachedSession;
use crate::signin::SignIn;

/// One's sessions.
#[derive(Debug, Serialize)]
pub struct Sessions {
    items: Vec<Item>,
}

/// One of them.
#[derive(Debug, Serialize)]
struct Item {
    id: String,
    current: bool,
    device: String,
    new_device: bool,
    address: String,
    login_method: LoginMethod,
    login_source: LoginSource,
    since: String,
    last_seen: String,
    expires_at: String,
}

impl Item {
    fn of(session: &Session, last_seen: Timestamp, caller: &CachedSession) -> Self {
        Self {
            id: session.id.to_string(),
            current: session.id == caller.session.id,
            device: device::describe(&session.user_agent),
            new_device: session.new_device,
            address: session.address.clone(),
            login_method: session.login_method,
            login_source: session.login_source,
            since: session.issued_at.iso8601(),
            last_seen: last_seen.iso8601(),
            expires_at: session.expires_at.iso8601(),
        }
    }
}

/// What became of it.
#[derive(Debug, Serialize)]
pub struct Ended {
    success: bool,
    ended: usize,
}

/// The caller's sessions, newest first.
pub async fn list(signin: &SignIn, caller: &CachedSession) -> Result<Sessions, Error> {
    let sessions = signin.sessions(caller).await?;
    Ok(Sessions { items: sessions.iter().map(|(session, seen)| Item::of(session, *seen, caller)).collect() })
}

/// Ends one of them.
pub async fn end(signin: &SignIn, caller: &CachedSession, id: &str) -> Result<Ended, Error> {
    signin.end_session(caller, id).await?;
    Ok(Ended { success: true, ended: 1 })
}

/// Ends all but the caller's own.
pub async fn end_others(signin: &SignIn, caller: &CachedSession) -> Result<Ended, Error> {
    Ok(Ended { success: true, ended: signin.end_other_sessions(caller).await? })
}
