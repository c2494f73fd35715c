//! `deskgate tail`

use std::io::{ErrorKind, Write};

use clap::Args;

use super::client::{ClientArgs, command_failed};
use super::output::{OutputFormat, with_iso_time};
use super::{Failed, print_error, runtime};
use crate::app::{FollowError, FollowUpdate, GatewayFollower};
use crate::domain::duration::HumanDuration;
use crate::domain::finished_request::{FinishedRequest, FollowEvent, FollowFilter, FollowedOutcomes};

#[derive(Args)]
pub(super) struct TailArgs {
    /// Show only requests that were refused, failed, were cut, or whose client disconnected.
    #[arg(long)]
    refused: bool,
    /// Show only requests of this employee.
    #[arg(long, value_name = "EMPLOYEE_ID")]
    employee: Option<String>,
    /// Show only requests that this rule decides, or those to the gateway's own endpoint with this path.
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// How long to wait for a gateway that has ended, as in a restart; 0s: do not wait.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_wait)]
    wait: HumanDuration,
    #[command(flatten)]
    client: ClientArgs,
}

fn parse_wait(text: &str) -> Result<HumanDuration, String> {
    HumanDuration::parse(text).ok_or_else(|| "not a duration such as 60s or 10m".to_owned())
}

pub(super) fn run(args: TailArgs) -> Result<(), Failed> {
    let outcomes = if args.refused { FollowedOutcomes::Refused } else { FollowedOutcomes::All };
    let filter = FollowFilter { outcomes, employee_id: args.employee, rule: args.rule };
    let config = args.client.load()?;
    runtime(1)?.block_on(async {
        let start = GatewayFollower::start(&config.server.data_dir, filter, args.wait.get());
        let mut follower = start.await.map_err(follow_failed)?;
        // On standard error, as all notices: standard output has requests only.
        eprintln!("following requests; press Ctrl-C to stop");
        loop {
            let event = match follower.next().await.map_err(follow_failed)? {
                FollowUpdate::Event(event) => event,
                notice => {
                    eprintln!("{}", notice_line(&notice, args.wait));
                    continue;
                }
            };
            let line = match args.client.format() {
                OutputFormat::Json => json(&event),
                OutputFormat::Table => text(&event),
            };
            let mut out = std::io::stdout().lock();
            match writeln!(out, "{line}").and_then(|()| out.flush()) {
                Ok(()) => {}
                // The reader of the pipe has seen enough.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                Err(error) => return Err(print_error(format!("standard output: {error}"))),
            }
        }
    })
}

fn follow_failed(error: FollowError) -> Failed {
    match error {
        FollowError::Command(refusal) => command_failed(refusal),
        other => print_error(other),
    }
}

/// What is said when the gateway ends or is replaced.
fn notice_line(notice: &FollowUpdate, wait: HumanDuration) -> String {
    match notice {
        FollowUpdate::Event(_) => String::new(),
        FollowUpdate::Gone => format!("the gateway has ended; waiting up to {wait} for it to run again"),
        FollowUpdate::Back { after } => {
            format!("following requests again; those of the last {:.1} s are not shown", after.as_secs_f64())
        }
        FollowUpdate::TakenOver => {
            "another process has taken over; following its requests, too, but its first ones are not shown".to_owned()
        }
    }
}

fn json(event: &FollowEvent) -> String {
    match event {
        FollowEvent::Started => String::new(),
        FollowEvent::Request(request) => with_iso_time(request, request.at).to_string(),
        FollowEvent::Lost(count) => serde_json::json!({ "lost": count }).to_string(),
    }
}

fn text(event: &FollowEvent) -> String {
    match event {
        FollowEvent::Started => String::new(),
        FollowEvent::Request(request) => request_line(request),
        FollowEvent::Lost(count) => format!("… {count} requests are not shown: this reader is too slow"),
    }
}

fn request_line(request: &FinishedRequest) -> String {
    let FinishedRequest { method, path, client_address, request_id, reason, .. } = request;
    let status = if request.status == 0 { "---".to_owned() } else { request.status.to_string() };
    let code = if request.code == 0 { String::new() } else { format!(" code={}", request.code) };
    let rule = request.rule.as_deref().unwrap_or("-");
    let employee = request.employee_id.as_deref().unwrap_or("-");
    format!(
        "{} {status} {method} {path}{code} rule={rule:?} employee={employee} client={client_address} took={:.1}ms id={request_id}: \
         {reason}",
        request.at.iso8601(),
        request.duration_ms
    )
}

#[cfg(test)]
mod tests;
