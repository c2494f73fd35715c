//! How sessions and tickets are written. A session's record begins with what scripts read and change, in digits of fixed
//! width: when it was last used, its expiry, its version. The rest is JSON with short names: a million sessions have a
//! million of each.

use serde::{Deserialize, Serialize};

use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::link::PlatformAccount;
use crate::domain::role::RoleName;
use crate::domain::session::{KeyId, LoginMethod, LoginSource, Session, SessionId, Stage, Version};
use crate::domain::ticket::Ticket;
use crate::store::StoreError;

/// The width of a time, and the last one that fits: in the year 2286.
pub(super) const TIME: usize = 13;
const LAST_TIME: i64 = 9_999_999_999_999;

/// The width of a version.
const VERSION: usize = 10;

/// The body of a session's record. Fields of [`Session`] that are missing here do not compile.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Session")]
struct SessionBody {
    #[serde(rename = "i")]
    id: SessionId,
    #[serde(skip, default = "first_version")]
    version: Version,
    #[serde(rename = "c")]
    corp_id: CorpId,
    #[serde(rename = "e")]
    employee_id: EmployeeId,
    #[serde(rename = "n")]
    name: String,
    #[serde(rename = "d", default, skip_serializing_if = "String::is_empty")]
    department: String,
    #[serde(rename = "v", default, skip_serializing_if = "String::is_empty")]
    avatar: String,
    #[serde(rename = "r")]
    roles: Vec<RoleName>,
    #[serde(rename = "o")]
    current_role: RoleName,
    #[serde(rename = "m")]
    login_method: LoginMethod,
    #[serde(rename = "s")]
    login_source: LoginSource,
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    platform_sign_in_at: Option<Timestamp>,
    #[serde(rename = "g")]
    stage: Stage,
    #[serde(rename = "u", default, skip_serializing_if = "Option::is_none")]
    stepped_up_until: Option<Timestamp>,
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    stepped_up_at: Option<Timestamp>,
    #[serde(rename = "b")]
    issued_at: Timestamp,
    #[serde(skip, default = "no_time")]
    expires_at: Timestamp,
    #[serde(rename = "k", default, skip_serializing_if = "Option::is_none")]
    key_id: Option<KeyId>,
    #[serde(rename = "w", default, skip_serializing_if = "Option::is_none")]
    password_id: Option<String>,
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none")]
    platform_account: Option<PlatformAccount>,
    #[serde(rename = "x", default, skip_serializing_if = "is_false")]
    new_device: bool,
    #[serde(rename = "l", default, skip_serializing_if = "is_empty")]
    address: Box<str>,
    #[serde(rename = "y", default, skip_serializing_if = "is_empty")]
    user_agent: Box<str>,
}

fn first_version() -> Version {
    Version::FIRST
}

fn no_time() -> Timestamp {
    Timestamp::from_millis(0)
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_false(value: &bool) -> bool {
    !value
}

#[allow(clippy::borrowed_box, reason = "the signature that serde calls")]
fn is_empty(text: &Box<str>) -> bool {
    text.is_empty()
}

/// A session and when it was last used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionRecord {
    pub(super) session: Session,
    pub(super) last_seen: Option<Timestamp>,
}

/// A time in digits of fixed width.
pub(super) fn time_digits(time: Timestamp) -> String {
    format!("{:0TIME$}", time.millis().clamp(0, LAST_TIME))
}

/// A session's record without its last use, which a change keeps and the feed leaves out.
pub(super) fn session_text(session: &Session) -> Result<String, StoreError> {
    let mut body = Vec::new();
    SessionBody::serialize(session, &mut serde_json::Serializer::new(&mut body)).map_err(damaged)?;
    let body = String::from_utf8(body).map_err(damaged)?;
    Ok(format!("{}{:0VERSION$}{body}", time_digits(session.expires_at), session.version.0))
}

/// The record of a session that was never used.
pub(super) fn new_session(session: &Session) -> Result<String, StoreError> {
    used_session(session, None)
}

/// The record of a session that was last used at this time.
pub(super) fn used_session(session: &Session, last_seen: Option<Timestamp>) -> Result<String, StoreError> {
    let last_seen = last_seen.unwrap_or_else(no_time);
    Ok(format!("{}{}", time_digits(last_seen), session_text(session)?))
}

/// The entry of a session in the list of the newest: it begins with the time of its start.
pub(super) fn newest_entry(session: &Session) -> String {
    format!("{}{}", time_digits(session.issued_at), session.id)
}

/// Reads a session's record.
pub(super) fn parse_session(record: &[u8]) -> Result<SessionRecord, StoreError> {
    let (seen, text) = record.split_at_checked(TIME).ok_or_else(|| damaged("a session's record is cut off"))?;
    let last_seen = number(seen)?;
    let last_seen = (last_seen > 0).then(|| Timestamp::from_millis(last_seen));
    Ok(SessionRecord { session: parse_session_text(text)?, last_seen })
}

/// Reads a session's record without its last use.
pub(super) fn parse_session_text(text: &[u8]) -> Result<Session, StoreError> {
    let (head, body) = text.split_at_checked(TIME + VERSION).ok_or_else(|| damaged("a session's record is cut off"))?;
    let mut session = SessionBody::deserialize(&mut serde_json::Deserializer::from_slice(body)).map_err(damaged)?;
    session.expires_at = Timestamp::from_millis(number(&head[..TIME])?);
    session.version = Version(number(&head[TIME..])?);
    Ok(session)
}

/// A ticket's record: its version in digits of fixed width, and JSON.
pub(super) fn ticket_text(ticket: &Ticket) -> Result<String, StoreError> {
    Ok(format!("{:0VERSION$}{}", ticket.version.0, serde_json::to_string(ticket).map_err(damaged)?))
}

/// Reads a ticket's record.
pub(super) fn parse_ticket(record: &[u8]) -> Result<Ticket, StoreError> {
    let body = record.get(VERSION..).ok_or_else(|| damaged("a ticket's record is cut off"))?;
    serde_json::from_slice(body).map_err(damaged)
}

fn number(digits: &[u8]) -> Result<i64, StoreError> {
    std::str::from_utf8(digits).map_err(damaged)?.parse().map_err(damaged)
}

fn damaged(cause: impl Into<crate::error::Cause>) -> StoreError {
    StoreError::Damaged(cause.into())
}

/// The members of a session in the index of its partition: by employee, and by platform account. Ordered by their bytes,
/// the sessions of one employee stand together.
pub(super) fn index_members(session: &Session) -> Vec<String> {
    let Session { id, corp_id, employee_id, platform_account, .. } = session;
    let mut members = vec![format!("{}{id}", employee_members(corp_id, employee_id))];
    members.extend(platform_account.as_ref().map(|account| format!("{}{id}", account_members(account))));
    members
}

/// What the members of an employee begin with.
pub(super) fn employee_members(corp_id: &CorpId, employee_id: &EmployeeId) -> String {
    format!("e\0{corp_id}\0{employee_id}\0")
}

/// What the members of a platform account begin with.
pub(super) fn account_members(account: &PlatformAccount) -> String {
    format!("a\0{}\0{}\0", account.corp_id, account.user_id)
}

/// The session that a member names.
pub(super) fn member_id(member: &str) -> SessionId {
    SessionId::new(member.rsplit('\0').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_read_as_it_was_written() {
        let full = Session {
            version: Version(7),
            expires_at: Timestamp::from_millis(1_800_000_000_123),
            department: "IT".to_owned(),
            key_id: Some(KeyId::new("k1")),
            new_device: true,
            user_agent: "a \"browser\"\r\n\0".into(),
            ..Session::sample()
        };
        for session in [full, Session { expires_at: Timestamp::from_millis(LAST_TIME), ..Session::sample() }] {
            let record = new_session(&session).expect("a record");
            assert_eq!(parse_session(record.as_bytes()).expect("a session").session, session);
            let seen = format!("{}{}", time_digits(Timestamp::from_millis(5)), &record[TIME..]);
            assert_eq!(parse_session(seen.as_bytes()).expect("a session").last_seen, Some(Timestamp::from_millis(5)));
        }
    }

    #[test]
    fn a_cut_off_record_is_damaged() {
        let record = new_session(&Session::sample()).expect("a record");
        for length in 0..record.len() {
            assert!(matches!(parse_session(&record.as_bytes()[..length]), Err(StoreError::Damaged(_))), "{length}");
        }
    }
}
