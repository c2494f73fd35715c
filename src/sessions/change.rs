//! Beginning, changing and ending sessions: in the store first, then here.

use std::sync::Arc;

use super::{CachedSession, SessionCache};
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, Employee, EmployeeId};
use crate::domain::role::{self, RoleName};
use crate::domain::session::{EndCause, Session, SessionId, Stage};
use crate::domain::write::WriteOutcome;
use crate::store::StoreError;

/// What became of a change to a session.
#[derive(Debug)]
pub enum SessionUpdate {
    /// It was made.
    Done(Arc<CachedSession>),
    /// The session is over.
    Gone,
    /// The session does not hold the role.
    NotHeld,
}

/// How often sessions that are to end are looked for. Who signs in again and again meanwhile does not hold it up.
const ROUNDS: usize = 8;

impl SessionCache {
    /// Keeps a new session.
    pub async fn create(&self, session: &Session) -> Result<(), StoreError> {
        self.store.create(session).await
    }

    /// Ends a session here and in the store. Durable, and effective on this gateway, when it returns.
    pub async fn end(&self, id: &SessionId, cause: EndCause) -> Result<(), StoreError> {
        self.store.revoke(id, self.token_lifetime, cause).await?;
        self.ended(id);
        Ok(())
    }

    /// Makes another of the held roles the active one.
    pub async fn switch_role(&self, id: &SessionId, role: &RoleName) -> Result<SessionUpdate, StoreError> {
        self.change(id, |session| {
            if !session.holds(role.as_str()) {
                return false;
            }
            session.current_role = role.clone();
            // Whoever puts on another hat proves it anew.
            session.stepped_up_until = None;
            true
        })
        .await
    }

    /// Steps a session up until `until`. A half-authenticated one stays one.
    pub async fn step_up(&self, id: &SessionId, until: Timestamp) -> Result<SessionUpdate, StoreError> {
        self.change(id, |session| {
            session.stepped_up_until = Some(until);
            true
        })
        .await
    }

    /// Takes a half-authenticated session out of use: it tells of itself until `end`, and opens nothing new. Not held, if
    /// it is none.
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

    /// Lets a session go on with another local password than the one that opened it.
    pub async fn set_password_id(&self, id: &SessionId, password_id: &str) -> Result<SessionUpdate, StoreError> {
        self.change(id, |session| {
            session.password_id = Some(password_id.to_owned());
            true
        })
        .await
    }

    /// Lets a session end at `end`, if it would go on longer.
    pub async fn shorten(&self, id: &SessionId, end: Timestamp) -> Result<SessionUpdate, StoreError> {
        self.change(id, |session| {
            session.expires_at = session.expires_at.min(end);
            true
        })
        .await
    }

    /// Ends every session of an employee. Returns how many there were.
    pub async fn end_all_of(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        cause: EndCause,
    ) -> Result<usize, StoreError> {
        self.end_those_of(corp_id, employee_id, cause, |_| true).await
    }

    /// Ends those sessions of an employee that fit. Returns how many there were.
    pub async fn end_those_of(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        cause: EndCause,
        fits: impl Fn(&Session) -> bool,
    ) -> Result<usize, StoreError> {
        let mut ended = 0;
        // Again: one may have begun, out of one that was to end, while these were ended.
        for _ in 0..ROUNDS {
            let mut sessions = self.store.of_employee(corp_id, employee_id).await?;
            sessions.retain(&fits);
            if sessions.is_empty() {
                break;
            }
            for session in &sessions {
                self.end(&session.id, cause).await?;
            }
            ended += sessions.len();
        }
        Ok(ended)
    }

    /// Gives every session of an employee what is known of them now. Returns how many had something else.
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

    /// Gives every session of an employee these roles; one whose active role is gone goes on in the
    /// highest that is left, and without any it ends.
    pub async fn change_roles(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        roles: &[RoleName],
    ) -> Result<usize, StoreError> {
        let sessions = self.store.of_employee(corp_id, employee_id).await?;
        let others = sessions.iter().filter(|session| session.roles != roles);
        let mut changed = 0;
        for session in others {
            changed += 1;
            let Some(highest) = role::highest(roles) else {
                self.end(&session.id, EndCause::RolesLost).await?;
                continue;
            };
            self.change(&session.id, |session| {
                session.roles = roles.to_vec();
                if !session.holds(session.current_role.as_str()) {
                    session.current_role = highest.clone();
                    // As at a switch: whoever gets on another hat proves it anew.
                    session.stepped_up_until = None;
                }
                true
            })
            .await?;
        }
        Ok(changed)
    }

    /// Takes every session of an employee down from its step-up: the device that gave it is gone.
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

    /// Changes a record, again and again until nobody came in between. `edit` says whether it may.
    async fn change(&self, id: &SessionId, edit: impl Fn(&mut Session) -> bool) -> Result<SessionUpdate, StoreError> {
        loop {
            let Some(mut session) = self.store.find(id).await? else { return Ok(SessionUpdate::Gone) };
            let seen = session.version;
            if !edit(&mut session) {
                return Ok(SessionUpdate::NotHeld);
            }
            session.version = seen.next();
            if self.store.replace(&session, seen).await? == WriteOutcome::Applied {
                self.changed(&session);
                return Ok(SessionUpdate::Done(Arc::new(CachedSession::new(session))));
            }
        }
    }
}
