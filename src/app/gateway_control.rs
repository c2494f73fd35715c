//! Commands about the running process itself: what it does and has done. Unlike those of `admin` they make no sense without it.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::admin::CommandError;
use crate::domain::finished_request::{FollowEvent, FollowFilter, RefusedRequest};
use crate::pipeline::journal::RequestJournal;

mod reload_request;

mod report;

pub use reload_request::{ReloadRequest, ReloadSummary};
pub(super) use report::ReportSources;
pub use report::{BackendReport, GatewayReport, PlatformReport, UpstreamReport};

/// A command to the running gateway.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GatewayCommand {
    /// `deskgate tail`: answered with one [`FollowEvent`] a line, until the client disconnects.
    Follow(FollowFilter),
    /// `deskgate explain --request-id ID`
    Refusals {
        /// The request id.
        request_id: String,
    },
    /// `deskgate status`
    Status,
    /// `deskgate reload`
    Reload,
}

/// The answer to a [`GatewayCommand`] other than `Follow`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GatewayAnswer {
    /// Refusals with one request id, the newest first.
    Refusals(Vec<RefusedRequest<'static>>),
    /// The state of the gateway.
    Status(Box<GatewayReport>),
    /// What a reload has changed.
    Reloaded(ReloadSummary),
}

/// What the commands work with.
#[derive(Clone)]
pub(super) struct GatewayControl {
    pub(super) journal: Arc<RequestJournal>,
    pub(super) report: ReportSources,
    pub(super) reloads: mpsc::Sender<ReloadRequest>,
}

impl GatewayControl {
    /// Answers a command.
    pub(super) async fn answer(&self, command: GatewayCommand, mut stream: UnixStream) -> io::Result<()> {
        let answer = match command {
            GatewayCommand::Follow(filter) => return self.follow(filter, stream).await,
            GatewayCommand::Refusals { request_id } => self.refusals(&request_id),
            GatewayCommand::Status => Ok(GatewayAnswer::Status(Box::new(self.report.report().await))),
            GatewayCommand::Reload if self.report.readiness.is_draining() => {
                Err(CommandError::Failed("the gateway is shutting down".to_owned()))
            }
            GatewayCommand::Reload => reload_request::ask(&self.reloads).await.map(GatewayAnswer::Reloaded),
        };
        write_line(&mut stream, &answer).await
    }

    fn refusals(&self, request_id: &str) -> Result<GatewayAnswer, CommandError> {
        let found = self.journal.refusals_of(request_id);
        if !found.is_empty() {
            return Ok(GatewayAnswer::Refusals(found));
        }
        let (count, since) = self.journal.kept();
        Err(CommandError::NotFound(format!(
            "this gateway has refused no request with the ID {request_id:?} since {} ({count} refusals are kept): it was answered by \
             an upstream or by another gateway of the fleet, or was refused earlier; the log may have its line",
            since.iso8601()
        )))
    }

    /// Writes requests as they end. A follower that reads slowly loses some; no request waits for it.
    async fn follow(&self, filter: FollowFilter, stream: UnixStream) -> io::Result<()> {
        let (mut reader, mut writer) = stream.into_split();
        let mut follower = match self.journal.followers.add(filter) {
            Ok(follower) => follower,
            Err(error) => {
                return write_line(&mut writer, &Err::<FollowEvent, _>(CommandError::Refused(error.to_string()))).await;
            }
        };
        let mut event = FollowEvent::Started;
        loop {
            match write_line(&mut writer, &Ok::<_, CommandError>(event)).await {
                // The operator has seen enough.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            }
            event = tokio::select! {
                event = follower.next() => event,
                // The client says nothing more: what can be read is its end.
                _ = reader.read_u8() => return Ok(()),
            };
        }
    }
}

async fn write_line(stream: &mut (impl AsyncWriteExt + Unpin), answer: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line).await
}
