//! Creates, changes and ends sessions: in the store first, then in the cache.

use std::sync::Arc;

use super::{CachedSession, SessionCache};
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, Employee, EmployeeId};
use crate::domain::role::{self, RoleName};
use crate::domain::session::{EndCause, Session, SessionId, Stage};
use crate::domain::write::WriteOutcome;
use crate::store::StoreError;

/// The result of a change to a session.
#[derive(Debug)]
pub enum SessionUpdate {
    /// The change was made.
    Done(Arc<CachedSession>),
    /// The session has ended.
    Gone,
    /// The session does not allow the change: it does not hold the role or is in another stage.
    NotAllowed,
}

/// How many sessions are revoked in one change of the store: other writes wait for it.
const SESSIONS_PER_CHANGE: usize = 500;

/// How often [`SessionCache::end_those_of`] lists sessions again; bounds the work if the employee keeps signing in.
const MAX_ROUNDS: usize = 8;

impl SessionCache {
    /// Stores a new session.
    pub async fn create(&self, session: &Session) -> Result<(), StoreError> {
        self.store.create(session).await
    }

    /// Revokes a session. When this returns, the revocation is durable and in effect on this gateway.
    pub async fn end(&self, id: &SessionId, cause: EndCause) -> Result<(), StoreError> {
        self.store.revoke(id, self.token_lifetime, cause).await?;
        self.remove(id);
        Ok(())
    }

    /// Revokes several sessions, many in one change of the store.
    pub async fn end_all(&self, ids: &[SessionId], cause: EndCause) -> Result<(), StoreError> {
        for part in ids.chunks(SESSIONS_PER_CHANGE) {
            self.store.revoke_all(part, self.token_lifetime, cause).await?;
            for id in part {
                self.remove(id);
            }
        }
        Ok(())
    }

    /// Makes another held role the active one.
    pub async fn switch_role(&self, id: &SessionId, role: &RoleName) -> Result<SessionUpdate, StoreError> {
        self.change(id, |session| {
            if !session.holds(role.as_str()) {
                return false;
            }
            session.current_role = role.clone();
            // A step-up is valid for one active role only.
            session.stepped_up_until = None;
            true
        })
        .await
    }

    /// Marks a session as stepped up from `at` to `until`. A half-authenticated session stays half-authenticated.
    pub async fn step_up(&self, id: &SessionId, at: Timestamp, until: Timestamp) -> Result<SessionUpdate, StoreError> {
        self.change(id, |session| {
            session.stepped_up_at = Some(at);
            session.stepped_up_until = Some(until);
            true
        })
        .await
    }

    /// Marks a half-authenticated session as spent: until `end` it answers `me`, and it opens nothing new. Returns
    /// [`SessionUpdate::NotAllowed`] for any other session.
    pub async fn spend(&self, id: &SessionId, end: Timestamp) -> Result<SessionUpdate, StoreError> {
        self.change(id, |session| {
            if session.stage != Stage::OtpBinding {
                return false;
            }
            session.stage = Stage::Spent;
            session.expires_at = session.expires_at.min(end);
            true
        })
        .await
    }

    /// Associates a session with a new local password, so that it survives the change of the old one.
    pub async fn set_password_id(&self, id: &SessionId, password_id: &str) -> Result<SessionUpdate, StoreError> {
        self.change(id, |session| {
            session.password_id = Some(password_id.to_owned());
            true
        })
        .await
    }

    /// Brings the expiry of several sessions forward to `end`, in one change of the store.
    pub async fn shorten_all(&self, ids: &[SessionId], end: Timestamp) -> Result<(), StoreError> {
        for session in self.store.shorten_all(ids, end).await? {
            self.replace_cached(&session);
        }
        Ok(())
    }

    /// Ends every session of an employee. Returns their number.
    pub async fn end_all_of(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        cause: EndCause,
    ) -> Result<usize, StoreError> {
        self.end_those_of(corp_id, employee_id, cause, |_| true).await
    }

    /// Ends the sessions of an employee that match. Returns their number.
    pub async fn end_those_of(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        cause: EndCause,
        matches: impl Fn(&Session) -> bool,
    ) -> Result<usize, StoreError> {
        let mut ended = 0;
        // Repeated: a session that is being ended may have started another one meanwhile.
        for _ in 0..MAX_ROUNDS {
            let (mut sessions, read) = self.store.readable_of_employee(corp_id, employee_id).await;
            sessions.retain(&matches);
            let ids: Vec<SessionId> = sessions.into_iter().map(|session| session.id).collect();
            self.end_all(&ids, cause).await?;
            // Only now: those that could be read have ended.
            read?;
            if ids.is_empty() {
                break;
            }
            ended += ids.len();
        }
        Ok(ended)
    }

    /// Copies an employee's profile into their sessions. Returns how many sessions differed.
    pub async fn change_profile(&self, employee: &Employee) -> Result<usize, StoreError> {
        let mut sessions = self.store.of_employee(&employee.corp_id, &employee.employee_id).await?;
        sessions.retain(|session| {
            (&session.name, &session.department, &session.avatar)
                != (&employee.name, &employee.department, &employee.avatar)
        });
        for session in &sessions {
            self.change(&session.id, |session| {
                session.name.clone_from(&employee.name);
                session.department.clone_from(&employee.department);
                session.avatar.clone_from(&employee.avatar);
                true
            })
            .await?;
        }
        Ok(sessions.len())
    }

    /// Sets the roles of an employee's sessions. A session that lost its active role continues in another one or ends
    /// ([`active_role_with`]). Returns how many sessions differed.
    pub async fn change_roles(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        roles: &[RoleName],
    ) -> Result<usize, StoreError> {
        let sessions = self.store.of_employee(corp_id, employee_id).await?;
        let differing = sessions.iter().filter(|session| session.roles != roles);
        let mut changed = 0;
        for session in differing {
            changed += 1;
            let update = self.change(&session.id, |session| {
                let Some(active) = active_role_with(roles, session).cloned() else { return false };
                if active != session.current_role {
                    session.current_role = active;
                    // As with a role switch: a step-up is valid for one active role only.
                    session.stepped_up_until = None;
                }
                session.roles = roles.to_vec();
                true
            });
            if let SessionUpdate::NotAllowed = update.await? {
                self.end(&session.id, EndCause::RolesLost).await?;
            }
        }
        Ok(changed)
    }

    /// Ends the step-up of an employee's sessions, because the device that proved it was removed.
    pub async fn step_down(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<usize, StoreError> {
        let sessions = self.store.of_employee(corp_id, employee_id).await?;
        let stepped_up = sessions.iter().filter(|session| session.stepped_up_until.is_some());
        let mut changed = 0;
        for session in stepped_up {
            changed += 1;
            self.change(&session.id, |session| {
                session.stepped_up_until = None;
                true
            })
            .await?;
        }
        Ok(changed)
    }

    /// Changes a session by compare-and-set and retries on a conflict. `edit` returns whether the change is allowed.
    async fn change(&self, id: &SessionId, edit: impl Fn(&mut Session) -> bool) -> Result<SessionUpdate, StoreError> {
        loop {
            let Some(mut session) = self.store.find(id).await? else { return Ok(SessionUpdate::Gone) };
            let seen = session.version;
            if !edit(&mut session) {
                return Ok(SessionUpdate::NotAllowed);
            }
            session.version = seen.next();
            if self.store.replace(&session, seen).await? == WriteOutcome::Applied {
                self.replace_cached(&session);
                return Ok(SessionUpdate::Done(Arc::new(CachedSession::new(session))));
            }
        }
    }
}

/// The active role of a session whose roles become `roles`: its own if it keeps that, the highest if the session gains a
/// role, else the highest that is not above the lost one. `None` if the session ends.
fn active_role_with<'a>(roles: &'a [RoleName], session: &Session) -> Option<&'a RoleName> {
    let active = &session.current_role;
    let gains = || roles.iter().any(|role| !session.holds(role.as_str()));
    match roles.iter().find(|role| *role == active) {
        Some(kept) => Some(kept),
        None if gains() => role::highest(roles),
        None => role::highest_after_losing(active, roles),
    }
}
