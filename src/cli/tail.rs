//! `deskgate tail`

use std::io::{ErrorKind, Write};

use clap::Args;

use super::client::{ClientArgs, command_failed};
use super::output::{OutputFormat, with_iso_time};
use super::{Failed, print_error, runtime};
use crate::app::FollowStream;
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
    #[command(flatten)]
    client: ClientArgs,
}

pub(super) fn run(args: TailArgs) -> Result<(), Failed> {
    let outcomes = if args.refused { FollowedOutcomes::Refused } else { FollowedOutcomes::All };
    let filter = FollowFilter { outcomes, employee_id: args.employee, rule: args.rule };
    let config = args.client.load()?;
    runtime(1)?.block_on(async {
        let mut stream = FollowStream::open(&config.server.data_dir, filter).await.map_err(print_error)?;
        loop {
            let event = stream.next().await.map_err(print_error)?.map_err(command_failed)?;
            if let FollowEvent::Started = event {
                // On standard error: standard output has requests only.
                eprintln!("following requests; press Ctrl-C to stop");
                continue;
            }
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
