//! `deskgate status`

use clap::Args;

use super::client::ask_gateway;
use super::{ConfigArgs, Exit, Failed, print, print_error};
use crate::app::{BackendReport, GatewayAnswer, GatewayCommand, GatewayReport};

#[derive(Args)]
pub(super) struct StatusArgs {
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn run(args: &StatusArgs) -> Result<(), Failed> {
    let GatewayAnswer::Status(report) = ask_gateway(&args.config, &GatewayCommand::Status)? else {
        return Err(print_error("the running gateway is of another version"));
    };
    print(if args.json { json(&report).to_string() } else { text(&report) })?;
    if report.ready { Ok(()) } else { Err(Failed(Exit::Failure)) }
}

fn json(report: &GatewayReport) -> serde_json::Value {
    let mut value = serde_json::json!(report);
    value["started_at"] = report.started_at.iso8601().into();
    if let Some(reload) = &report.last_reload {
        value["last_reload"]["at"] = reload.at.iso8601().into();
    }
    value
}

fn text(report: &GatewayReport) -> String {
    let uptime = uptime(report.uptime_seconds);
    let short = |digest: &str| digest.chars().take(8).collect::<String>();
    let mut lines = Vec::new();
    let mut add = |name: &str, value: String| lines.push(format!("{name:<13} {value}"));
    add("version", format!("{} ({})", report.version, report.commit));
    add("process", format!("{}, up {uptime} since {}", report.pid, report.started_at.iso8601()));
    add("ready", if report.ready { "yes".to_owned() } else { format!("no: {}", report.not_ready.join("; ")) });
    if report.development {
        add("mode", "development".to_owned());
    }
    add("listeners", format!("{}; admin {}", report.listeners.join(", "), report.admin_listener));
    add("config", short(&report.config_digest));
    add("rules", format!("{} ({})", report.rules, short(&report.rules_digest)));
    add(
        "last reload",
        match &report.last_reload {
            None => "none since the start".to_owned(),
            Some(reload) => match &reload.error {
                None => format!("{}, applied", reload.at.iso8601()),
                Some(error) => format!("{}, refused: {error}", reload.at.iso8601()),
            },
        },
    );
    add("sessions", report.sessions.map_or_else(|| "unknown".to_owned(), |count| count.to_string()));
    add(
        "load",
        format!(
            "{} of {} connections, {} WebSockets, {} requests in flight",
            report.connections, report.connections_limit, report.websockets, report.requests_in_flight
        ),
    );
    add("store", backend(&report.store));
    add("directory", backend(&report.directory));
    let circuit = match report.platform.circuit_open_seconds {
        None => "circuit closed".to_owned(),
        Some(seconds) => format!("circuit open for another {seconds} s: it fails, and sign-ins are refused"),
    };
    add("platform", format!("{}, {circuit}", report.platform.kind));
    for upstream in &report.upstreams {
        add("upstream", format!("{}: {} of {} addresses healthy", upstream.name, upstream.healthy, upstream.total));
    }
    lines.join("\n")
}

/// A time in its two largest units, such as `3d 4h`.
fn uptime(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let first = units.iter().position(|(size, _)| seconds >= *size).unwrap_or(units.len() - 1);
    let mut left = seconds;
    let mut parts = Vec::new();
    for (size, unit) in units.iter().skip(first).take(2) {
        if left >= *size || parts.is_empty() {
            parts.push(format!("{}{unit}", left / size));
        }
        left %= size;
    }
    parts.join(" ")
}

fn backend(backend: &BackendReport) -> String {
    let state = backend.error.as_ref().map_or_else(|| "ok".to_owned(), |error| format!("unavailable: {error}"));
    let lag = backend.feed_lag_ms.map(|lag| format!(", change feed read {lag} ms ago")).unwrap_or_default();
    format!("{}, {state}{lag}", backend.kind)
}

#[cfg(test)]
mod tests;
