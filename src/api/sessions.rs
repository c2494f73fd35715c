//! `GET` and `DELETE /api/auth/sessions`, `DELETE /api/auth/sessions/{id}`: the caller's own sessions.

use serde::Serialize;

use crate::domain::clock::Timestamp;
use crate::domain::device;
use crate::domain::link::PlatformAccount;
use crate::domain::session::{LoginMethod, LoginSource, Session, Stage};
use crate::error::Error;
use crate::sessions::CachedSession;
use crate::signin::sessions::UserSessions;

/// The caller's sessions.
#[derive(Debug, Serialize)]
pub struct SessionList {
    items: Vec<SessionItem>,
}

#[derive(Debug, Serialize)]
struct SessionItem {
    id: String,
    current: bool,
    device: String,
    new_device: bool,
    address: String,
    login_method: LoginMethod,
    login_source: LoginSource,
    platform_account: Option<String>,
    stage: Stage,
    since: String,
    last_seen: String,
    expires_at: String,
}

impl SessionItem {
    fn new(session: &Session, last_seen: Timestamp, caller: &CachedSession) -> Self {
        Self {
            id: session.id.to_string(),
            current: session.id == caller.session.id,
            device: device::describe(&session.user_agent),
            new_device: session.new_device,
            address: session.address.to_string(),
            login_method: session.login_method,
            login_source: session.login_source,
            platform_account: session.platform_account.as_ref().map(PlatformAccount::to_string),
            stage: session.stage,
            since: session.issued_at.iso8601(),
            last_seen: last_seen.iso8601(),
            expires_at: session.expires_at.iso8601(),
        }
    }
}

/// How many sessions were ended.
#[derive(Debug, Serialize)]
pub struct EndedSessions {
    success: bool,
    ended: usize,
}

/// Lists the caller's sessions, newest first.
pub async fn list(sessions: &UserSessions, caller: &CachedSession) -> Result<SessionList, Error> {
    let own = sessions.list(caller).await?;
    Ok(SessionList { items: own.iter().map(|(session, seen)| SessionItem::new(session, *seen, caller)).collect() })
}

/// Ends one of the caller's sessions.
pub async fn end(sessions: &UserSessions, caller: &CachedSession, id: &str) -> Result<EndedSessions, Error> {
    sessions.end(caller, id).await?;
    Ok(EndedSessions { success: true, ended: 1 })
}

/// Ends all of the caller's sessions except the current one.
pub async fn end_others(sessions: &UserSessions, caller: &CachedSession) -> Result<EndedSessions, Error> {
    Ok(EndedSessions { success: true, ended: sessions.end_others(caller).await? })
}
