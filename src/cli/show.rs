//! What came of an order: tables for people, JSON for scripts.

use unicode_width::UnicodeWidthStr;

use super::{Failed, print, print_error};
use crate::admin::employees::EmployeeRow;
use crate::admin::keys::KeyRow;
use crate::admin::sessions::SessionRow;
use crate::admin::{Done, MOST};
use crate::directory::audit::AuditEntry;
use crate::directory::people::AgentEntry;
use crate::directory::{Assignment, LoginEntry};
use crate::domain::clock::Timestamp;
use crate::domain::employee::Standing;
use crate::token::ring::KeyState;

/// How it is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Table,
    Json,
}

pub(super) fn done(done: &Done, shown: Shown) -> Result<(), Failed> {
    match shown {
        Shown::Json => print(json(done)),
        Shown::Table => people(done),
    }
}

fn json(done: &Done) -> serde_json::Value {
    match done {
        Done::Sessions(rows) => serde_json::json!(rows),
        Done::Assignments(rows) => serde_json::json!(rows),
        Done::Employees(rows) => serde_json::json!(rows),
        Done::Agents(rows) => serde_json::json!(rows),
        Done::Keys(rows) => serde_json::json!(rows),
        Done::Logins(rows) => rows.iter().map(|row| timed(row, row.at)).collect(),
        Done::Events(rows) => rows.iter().map(|row| timed(row, row.at)).collect(),
        Done::Changed { sessions, note } => {
            serde_json::json!({ "changed": true, "sessions": sessions, "note": note })
        }
        Done::Unchanged => serde_json::json!({ "changed": false, "sessions": 0, "note": null }),
        Done::OtpBound(bound) => serde_json::json!({ "otp_bound": bound }),
        Done::Offered { secret, otpauth_url } => {
            serde_json::json!({ "secret": secret, "otpauth_url": otpauth_url })
        }
        Done::KeyMade { key, sessions } => serde_json::json!({ "key": key, "sessions": sessions }),
    }
}

fn people(done: &Done) -> Result<(), Failed> {
    match done {
        Done::Sessions(rows) => table(SESSION, rows.iter().map(session).collect()),
        Done::Assignments(rows) => table(&["CORP", "EMPLOYEE", "NAME", "ROLE"], rows.iter().map(assignment).collect()),
        Done::Employees(rows) => table(EMPLOYEE, rows.iter().map(employee).collect()),
        Done::Agents(rows) => table(AGENT, rows.iter().map(agent).collect()),
        Done::Keys(rows) => table(KEY, rows.iter().map(key).collect()),
        Done::Logins(rows) => table(LOGIN, rows.iter().map(login).collect()),
        Done::Events(rows) => table(EVENT, rows.iter().map(event).collect()),
        Done::Changed { sessions, note } => {
            match sessions {
                0 => print("done")?,
                sessions => print(format_args!("done; live sessions affected: {sessions}"))?,
            }
            note.as_ref().map_or(Ok(()), |note| print(format_args!("note: {note}")))
        }
        Done::Unchanged => print("nothing to change"),
        // Shown by the command itself, which goes on.
        Done::Offered { .. } | Done::OtpBound(_) => Ok(()),
        Done::KeyMade { key, sessions } => {
            print(format_args!("key {} signs from {} on", key.id, key.signs_from))?;
            match sessions {
                0 => Ok(()),
                sessions => print(format_args!("live sessions that end earlier for it: {sessions}")),
            }
        }
    }
}

const SESSION: &[&str] = &["SESSION", "CORP", "EMPLOYEE", "ROLE", "METHOD", "DEVICE", "ADDRESS", "SINCE", "UNTIL"];

fn session(row: &SessionRow) -> Vec<String> {
    let device = if row.new_device { format!("{} (new)", row.device) } else { row.device.clone() };
    let [id, corp, employee, role, method, address] =
        [&row.id, &row.corp_id, &row.employee_id, &row.current_role, &row.login_method, &row.address].map(Clone::clone);
    vec![id, corp, employee, role, method, device, address, seconds(&row.since), seconds(&row.until)]
}

fn assignment(row: &Assignment) -> Vec<String> {
    vec![row.corp_id.to_string(), row.employee_id.to_string(), row.name.clone(), row.role.to_string()]
}

const EMPLOYEE: &[&str] =
    &["CORP", "EMPLOYEE", "NAME", "DEPARTMENT", "MAY SIGN IN", "ROLES", "AGENT", "OTP", "LOCKED UNTIL", "LAST ADDRESS"];

fn employee(row: &EmployeeRow) -> Vec<String> {
    let person = &row.employee;
    vec![
        person.corp_id.to_string(),
        person.employee_id.to_string(),
        person.name.clone(),
        person.department.clone(),
        yes(person.standing == Standing::Active),
        row.roles.join(","),
        yes(row.agent),
        yes(row.otp_bound),
        row.locked_until.as_deref().map(seconds).unwrap_or_default(),
        person.last_login_ip.clone().unwrap_or_default(),
    ]
}

const AGENT: &[&str] = &["CORP", "EMPLOYEE", "NAME", "MAY SIGN IN", "ROLE", "PASSWORD", "OTP REQUIRED", "OTP BOUND"];

fn agent(row: &AgentEntry) -> Vec<String> {
    vec![
        row.corp_id.to_string(),
        row.employee_id.to_string(),
        row.name.clone(),
        yes(row.standing == Standing::Active),
        row.role.to_string(),
        yes(row.password),
        yes(row.otp_required),
        yes(row.otp_bound),
    ]
}

const KEY: &[&str] = &["KEY", "ALGORITHM", "STATE", "SIGNS FROM", "VALID UNTIL"];

fn key(row: &KeyRow) -> Vec<String> {
    let state = match row.state {
        KeyState::Pending => "waiting",
        KeyState::Signing => "signing",
        KeyState::VerifyOnly => "verify only",
        KeyState::Retired => "over",
    };
    let until = row.valid_until.as_deref().map(seconds).unwrap_or_default();
    vec![row.id.clone(), row.algorithm.clone(), state.to_owned(), seconds(&row.signs_from), until]
}

const LOGIN: &[&str] = &["WHEN", "CORP", "EMPLOYEE", "METHOD", "SOURCE", "RESULT", "REASON", "ADDRESS", "DEVICE"];

fn login(row: &LoginEntry) -> Vec<String> {
    vec![
        seconds(&row.at.iso8601()),
        row.corp_id.clone(),
        row.employee_id.clone(),
        row.login_method.clone(),
        row.login_source.clone(),
        row.result.clone(),
        row.reason.clone(),
        row.ip_address.clone(),
        crate::domain::device::describe(&row.user_agent),
    ]
}

const EVENT: &[&str] = &["WHEN", "CORP", "EMPLOYEE", "EVENT", "DETAIL", "BY", "SESSION", "REFUSED"];

fn event(row: &AuditEntry) -> Vec<String> {
    let texts = [&row.corp_id, &row.employee_id, &row.event, &row.detail, &row.by, &row.session_id, &row.refused];
    std::iter::once(seconds(&row.at.iso8601())).chain(texts.map(Clone::clone)).collect()
}

/// A line with its time as all others are written.
fn timed(row: &impl serde::Serialize, at: Timestamp) -> serde_json::Value {
    let mut line = serde_json::json!(row);
    line["at"] = serde_json::json!(at.iso8601());
    line
}

fn yes(so: bool) -> String {
    if so { "yes" } else { "no" }.to_owned()
}

/// A moment without its milliseconds: `2026-01-02T03:04:05Z`.
fn seconds(moment: &str) -> String {
    moment.split_once('.').map_or_else(|| moment.to_owned(), |(whole, _)| format!("{whole}Z"))
}

fn table(heads: &[&str], rows: Vec<Vec<String>>) -> Result<(), Failed> {
    if rows.len() >= MOST {
        print_error(format!("these are the first {MOST}; there may be more"));
    }
    print(lines(heads, &rows).join("\n"))
}

/// The table's lines. Names may be of letters twice as wide, and may carry what a terminal would execute.
fn lines(heads: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let plain = |cell: &str| cell.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect::<String>();
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let all = || std::iter::once(&heads).chain(&rows);
    let width = |column: usize| all().filter_map(|row| row.get(column)).map(|cell| cell.width()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let padded = row.iter().zip(&widths).map(|(cell, width)| {
            let fill = width.saturating_sub(cell.width());
            format!("{cell}{}", " ".repeat(fill))
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all().map(line).collect()
}

#[cfg(test)]
mod tests;
