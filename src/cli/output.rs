//! Prints the output of a command: tables and sentences for people, JSON for scripts.

use unicode_width::UnicodeWidthStr;

use super::{Failed, print, print_error};
use crate::admin::command::PreviousSecretUse;
use crate::admin::employees::EmployeeRow;
use crate::admin::fleet::GatewayRow;
use crate::admin::keys::KeyRow;
use crate::admin::links::LinkRow;
use crate::admin::sessions::SessionRow;
use crate::admin::{CommandOutput, MAX_ROWS};
use crate::directory::audit::AuditEntry;
use crate::directory::people::AgentEntry;
use crate::directory::{Assignment, LoginEntry};
use crate::domain::clock::Timestamp;
use crate::domain::employee::Standing;
use crate::token::ring::KeyState;
use crate::upstreams::UpstreamRow;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputFormat {
    Table,
    Json,
}

pub(super) fn print_output(output: &CommandOutput, format: OutputFormat) -> Result<(), Failed> {
    match format {
        OutputFormat::Json => print(json(output)),
        OutputFormat::Table => print_text(output),
    }
}

fn json(output: &CommandOutput) -> serde_json::Value {
    match output {
        CommandOutput::Sessions(rows) => serde_json::json!(rows),
        CommandOutput::Assignments(rows) => serde_json::json!(rows),
        CommandOutput::Employees(rows) => serde_json::json!(rows),
        CommandOutput::Agents(rows) => serde_json::json!(rows),
        CommandOutput::Keys(rows) => serde_json::json!(rows),
        CommandOutput::Links(rows) => serde_json::json!(rows),
        CommandOutput::Gateways(rows) => serde_json::json!(rows),
        CommandOutput::Upstreams(rows) => serde_json::json!(rows),
        CommandOutput::LinksAdded { added, unchanged, note } => {
            serde_json::json!({ "added": added, "unchanged": unchanged, "note": note })
        }
        CommandOutput::Logins(rows) => rows.iter().map(|row| with_iso_time(row, row.at)).collect(),
        CommandOutput::AuditEntries(rows) => rows.iter().map(|row| with_iso_time(row, row.at)).collect(),
        CommandOutput::PreviousSecrets(previous) => serde_json::json!(previous),
        CommandOutput::Changed { sessions, note } => {
            serde_json::json!({ "changed": true, "sessions": sessions, "note": note })
        }
        CommandOutput::Unchanged => serde_json::json!({ "changed": false, "sessions": 0, "note": null }),
        CommandOutput::OtpBound(bound) => serde_json::json!({ "otp_bound": bound }),
        CommandOutput::OtpOffered { secret, otpauth_url } => {
            serde_json::json!({ "secret": secret, "otpauth_url": otpauth_url })
        }
        CommandOutput::KeyCreated { key, sessions, note } => {
            serde_json::json!({ "key": key, "sessions": sessions, "note": note })
        }
    }
}

fn print_text(output: &CommandOutput) -> Result<(), Failed> {
    match output {
        CommandOutput::Sessions(rows) => print_table(SESSION, rows.iter().map(session).collect()),
        CommandOutput::Assignments(rows) => print_table(ASSIGNMENT, rows.iter().map(assignment).collect()),
        CommandOutput::Employees(rows) => print_table(EMPLOYEE, rows.iter().map(employee).collect()),
        CommandOutput::Agents(rows) => print_table(AGENT, rows.iter().map(agent).collect()),
        CommandOutput::Keys(rows) => print_table(KEY, rows.iter().map(key).collect()),
        CommandOutput::Links(rows) => print_table(LINK, rows.iter().map(link).collect()),
        CommandOutput::Gateways(rows) => print_table(GATEWAY, rows.iter().map(gateway).collect()),
        CommandOutput::Upstreams(rows) => print_table(UPSTREAM, rows.iter().map(upstream).collect()),
        CommandOutput::LinksAdded { added, unchanged, note } => {
            match unchanged {
                0 => print(format_args!("done; {} added", count_links(*added)))?,
                unchanged => print(format_args!("done; {} added, {unchanged} already there", count_links(*added)))?,
            }
            print_note(note.as_deref())
        }
        CommandOutput::Logins(rows) => print_table(LOGIN, rows.iter().map(login).collect()),
        CommandOutput::AuditEntries(rows) => print_table(EVENT, rows.iter().map(event).collect()),
        CommandOutput::PreviousSecrets(previous) => print(previous_secrets(*previous)),
        CommandOutput::Changed { sessions, note } => {
            print(done(*sessions))?;
            print_note(note.as_deref())
        }
        CommandOutput::Unchanged => print("nothing to change"),
        // `employee otp-bind` prints these itself.
        CommandOutput::OtpOffered { .. } | CommandOutput::OtpBound(_) => Ok(()),
        CommandOutput::KeyCreated { key, sessions, note } => {
            print(format_args!("key {} created; it signs from {}", key.id, seconds(&key.signs_from)))?;
            match sessions {
                0 => {}
                1 => print("1 session now ends earlier")?,
                sessions => print(format_args!("{} now end earlier", count_sessions(*sessions)))?,
            }
            print_note(note.as_deref())
        }
    }
}

fn print_note(note: Option<&str>) -> Result<(), Failed> {
    note.map_or(Ok(()), |note| print(format_args!("note: {note}")))
}

/// What was done; the sessions are those that it affected.
pub(super) fn done(sessions: usize) -> String {
    match sessions {
        0 => "done".to_owned(),
        sessions => format!("done; {} affected", count_sessions(sessions)),
    }
}

fn count_sessions(count: usize) -> String {
    if count == 1 { "1 session".to_owned() } else { format!("{count} sessions") }
}

fn previous_secrets(previous: PreviousSecretUse) -> String {
    match (previous.one_time_passwords, previous.signing_keys) {
        (0, 0) => "no one-time-password secret and no signing key needs a previous secret".to_owned(),
        (devices, keys) => format!(
            "encrypted with a previous secret: one-time-password secrets: {devices}, signing keys: {keys}; the next start of \
             a gateway encrypts them again"
        ),
    }
}

fn count_links(count: usize) -> String {
    if count == 1 { "1 link".to_owned() } else { format!("{count} links") }
}

const SESSION: &[&str] = &[
    "SESSION",
    "CORP",
    "EMPLOYEE",
    "ROLE",
    "METHOD",
    "STAGE",
    "DEVICE",
    "ADDRESS",
    "SINCE",
    "UNTIL",
    "PLATFORM ACCOUNT",
];

fn session(row: &SessionRow) -> Vec<String> {
    let device = if row.new_device { format!("{} (new)", row.device) } else { row.device.clone() };
    vec![
        row.id.clone(),
        row.corp_id.clone(),
        row.employee_id.clone(),
        row.current_role.clone(),
        row.login_method.clone(),
        row.stage.clone(),
        device,
        row.address.clone(),
        seconds(&row.since),
        seconds(&row.until),
        row.platform_account.clone().unwrap_or_default(),
    ]
}

const ASSIGNMENT: &[&str] = &["CORP", "EMPLOYEE", "NAME", "ROLE"];

fn assignment(row: &Assignment) -> Vec<String> {
    vec![row.corp_id.to_string(), row.employee_id.to_string(), row.name.clone(), row.role.to_string()]
}

const EMPLOYEE: &[&str] =
    &["CORP", "EMPLOYEE", "NAME", "DEPARTMENT", "ENABLED", "ROLES", "AGENT", "OTP", "LOCKED UNTIL", "LAST ADDRESS"];

fn employee(row: &EmployeeRow) -> Vec<String> {
    let person = &row.employee;
    vec![
        person.corp_id.to_string(),
        person.employee_id.to_string(),
        person.name.clone(),
        person.department.clone(),
        match person.inactive {
            Some(reason) => format!("no ({})", reason.as_str()),
            None => yes_no(person.standing == Standing::Active),
        },
        row.roles.join(","),
        yes_no(row.agent),
        yes_no(row.otp_bound),
        row.locked_until.as_deref().map(seconds).unwrap_or_default(),
        person.last_login_ip.clone().unwrap_or_default(),
    ]
}

const AGENT: &[&str] = &["CORP", "EMPLOYEE", "NAME", "ENABLED", "ROLE", "PASSWORD", "OTP REQUIRED", "OTP BOUND"];

fn agent(row: &AgentEntry) -> Vec<String> {
    vec![
        row.corp_id.to_string(),
        row.employee_id.to_string(),
        row.name.clone(),
        yes_no(row.standing == Standing::Active),
        row.role.to_string(),
        yes_no(row.password),
        yes_no(row.otp_required),
        yes_no(row.otp_bound),
    ]
}

const GATEWAY: &[&str] =
    &["GATEWAY", "HOST", "LISTEN", "VERSION", "RULES", "CONFIG", "WEBSOCKETS", "FEED LAG", "SINCE", "DIFFERS IN"];

fn gateway(row: &GatewayRow) -> Vec<String> {
    let status = &row.status;
    let short = |digest: &str| digest.chars().take(8).collect::<String>();
    vec![
        status.id.to_string(),
        status.host.clone(),
        status.listen.clone(),
        format!("{} ({})", status.version, status.commit),
        short(&status.rules),
        short(&status.config),
        status.sockets.to_string(),
        status.feed_lag_ms.map_or_else(|| "not read".to_owned(), |lag| format!("{lag} ms")),
        seconds(&status.started_at.iso8601()),
        row.differs_in.join(", "),
    ]
}

const LINK: &[&str] = &["ACCOUNT", "CORP", "EMPLOYEE", "STATE", "REQUESTED", "APPROVED BY", "APPROVED"];

fn link(row: &LinkRow) -> Vec<String> {
    vec![
        format!("{}/{}", row.corp_id, row.platform_user),
        row.employee_corp_id.clone(),
        row.employee_id.clone(),
        match &row.gone_at {
            Some(_) => format!("{} (gone)", row.state.as_str()),
            None => row.state.as_str().to_owned(),
        },
        seconds(&row.requested_at),
        row.approved_by.clone().unwrap_or_default(),
        row.approved_at.as_deref().map(seconds).unwrap_or_default(),
    ]
}

const KEY: &[&str] = &["KEY", "ALGORITHM", "STATE", "SIGNS FROM", "VALID UNTIL"];

fn key(row: &KeyRow) -> Vec<String> {
    let state = match row.state {
        KeyState::Pending => "pending",
        KeyState::Signing => "signing",
        KeyState::VerifyOnly => "verify only",
        KeyState::Retired => "retired",
    };
    let until = row.valid_until.as_deref().map(seconds).unwrap_or_default();
    vec![row.id.clone(), row.algorithm.clone(), state.to_owned(), seconds(&row.signs_from), until]
}

const UPSTREAM: &[&str] =
    &["UPSTREAM", "ADDRESS", "WEIGHT", "STATE", "UNTIL", "IN FLIGHT", "LATENCY", "FAILURES", "LAST FAILURE"];

fn upstream(row: &UpstreamRow) -> Vec<String> {
    let failure = match (&row.last_failure, &row.last_failure_at) {
        (Some(why), Some(at)) => format!("{why} ({})", seconds(at)),
        _ => String::new(),
    };
    vec![
        row.upstream.clone(),
        row.address.clone(),
        row.weight.to_string(),
        row.state.as_str().to_owned(),
        row.ejected_until.as_deref().map(seconds).unwrap_or_default(),
        row.in_flight.to_string(),
        row.latency_ms.map(|latency| format!("{latency:.1} ms")).unwrap_or_default(),
        row.failures.to_string(),
        failure,
    ]
}

const LOGIN: &[&str] = &[
    "WHEN",
    "CORP",
    "EMPLOYEE",
    "METHOD",
    "SOURCE",
    "RESULT",
    "REASON",
    "ADDRESS",
    "DEVICE",
    "PLATFORM ACCOUNT",
    "REQUEST ID",
];

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
        row.platform_account.clone(),
        row.request_id.clone(),
    ]
}

const EVENT: &[&str] = &["WHEN", "CORP", "EMPLOYEE", "EVENT", "DETAIL", "BY", "SESSION", "REFUSED"];

fn event(row: &AuditEntry) -> Vec<String> {
    let texts = [&row.corp_id, &row.employee_id, &row.event, &row.detail, &row.by, &row.session_id, &row.refused];
    std::iter::once(seconds(&row.at.iso8601())).chain(texts.map(Clone::clone)).collect()
}

/// Serializes a log entry with its time in ISO 8601, as in all other output.
pub(super) fn with_iso_time(entry: &impl serde::Serialize, at: Timestamp) -> serde_json::Value {
    let mut entry = serde_json::json!(entry);
    entry["at"] = serde_json::json!(at.iso8601());
    entry
}

fn yes_no(condition: bool) -> String {
    if condition { "yes" } else { "no" }.to_owned()
}

/// Cuts the milliseconds off a time: `2026-01-02T03:04:05Z`.
fn seconds(time: &str) -> String {
    time.split_once('.').map_or_else(|| time.to_owned(), |(whole, _)| format!("{whole}Z"))
}

fn print_table(header: &[&str], rows: Vec<Vec<String>>) -> Result<(), Failed> {
    if rows.len() >= MAX_ROWS {
        print_error(format!("showing the first {MAX_ROWS} rows; there may be more"));
    }
    print(table_lines(header, &rows).join("\n"))
}

/// Lays out a table. Measures the display width of wide characters, and replaces control characters, which the
/// terminal would interpret.
pub(super) fn table_lines(header: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let printable = |cell: &str| cell.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect::<String>();
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let header: Vec<String> = header.iter().map(|title| (*title).to_owned()).collect();
    let all = || std::iter::once(&header).chain(&rows);
    let width = |column: usize| all().filter_map(|row| row.get(column)).map(|cell| cell.width()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let padded = row.iter().zip(&widths).map(|(cell, width)| {
            let padding = width.saturating_sub(cell.width());
            format!("{cell}{}", " ".repeat(padding))
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all().map(line).collect()
}

#[cfg(test)]
mod tests;
