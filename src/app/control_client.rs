//! The other end of the control socket: sends a command to the gateway that runs on a data directory.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::gateway_control::{GatewayAnswer, GatewayCommand};
use crate::admin::{AdminCommand, CommandError, CommandOutput};
use crate::domain::finished_request::{FollowEvent, FollowFilter};

/// The control socket in the data directory.
pub(super) const SOCKET_FILE: &str = "control.sock";

/// Longest wait for a command's result; ending all sessions of a key takes longest.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a command did not reach a running gateway, or why its result is unknown.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum ControlError {
    #[error("no gateway is running")]
    NotRunning,
    #[error("{}: permission denied; run the command as the gateway's user or as root", .0.display())]
    NotAllowed(PathBuf),
    #[error("the running gateway does not respond; it may still execute the command")]
    Timeout,
    #[error("the gateway stopped before it responded; it may have executed the command")]
    Stopped,
    #[error("cannot reach the running gateway: {0}")]
    Io(#[from] io::Error),
    #[error("the running gateway is of another version; restart it or use its version of deskgate")]
    Version(#[from] serde_json::Error),
}

impl ControlError {
    /// Whether there is no gateway, or none any more.
    pub(super) fn is_end(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
        match self {
            ControlError::NotRunning | ControlError::Stopped => true,
            ControlError::Io(error) => {
                matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected)
            }
            ControlError::NotAllowed(_) | ControlError::Timeout | ControlError::Version(_) => false,
        }
    }
}

/// Connects to the gateway that runs on this data directory; `None` if none does.
pub(super) async fn connect(data: &Path) -> Result<Option<UnixStream>, ControlError> {
    let path = data.join(SOCKET_FILE);
    match UnixStream::connect(&path).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(ControlError::NotAllowed(path)),
        Err(error) => Err(error.into()),
    }
}

/// Sends a command to the gateway that runs on this data directory, and returns its result.
pub async fn send_command(
    data: &Path,
    command: &AdminCommand,
) -> Result<Result<CommandOutput, CommandError>, ControlError> {
    send_within(COMMAND_TIMEOUT, data, command).await
}

/// Sends a command about the process itself, and returns its answer.
pub async fn send_gateway_command(
    data: &Path,
    command: &GatewayCommand,
) -> Result<Result<GatewayAnswer, CommandError>, ControlError> {
    send_within(COMMAND_TIMEOUT, data, command).await
}

async fn send_within<Answer: DeserializeOwned>(
    timeout: Duration,
    data: &Path,
    command: &impl Serialize,
) -> Result<Result<Answer, CommandError>, ControlError> {
    let (mut reader, _writer) = send(data, command).await?;
    let mut line = Vec::new();
    tokio::time::timeout(timeout, read_answer(&mut reader, &mut line)).await.map_err(|_| ControlError::Timeout)?
}

/// Sends a line. The writer keeps the connection open in that direction.
async fn send(
    data: &Path,
    command: &impl Serialize,
) -> Result<(BufReader<OwnedReadHalf>, OwnedWriteHalf), ControlError> {
    let stream = connect(data).await?.ok_or(ControlError::NotRunning)?;
    let (reader, mut writer) = stream.into_split();
    let mut request = serde_json::to_vec(command)?;
    request.push(b'\n');
    writer.write_all(&request).await?;
    Ok((BufReader::new(reader), writer))
}

/// Reads a line. If this is cancelled, `line` has what was read of it, for the next call.
async fn read_answer<Answer: DeserializeOwned>(
    reader: &mut BufReader<OwnedReadHalf>,
    line: &mut Vec<u8>,
) -> Result<Result<Answer, CommandError>, ControlError> {
    reader.read_until(b'\n', line).await?;
    let line = std::mem::take(line);
    if line.ends_with(b"\n") { Ok(serde_json::from_slice(&line)?) } else { Err(ControlError::Stopped) }
}

/// Reads finished requests from one process.
pub(super) struct FollowStream {
    reader: BufReader<OwnedReadHalf>,
    /// What has been read of the next event.
    line: Vec<u8>,
    _writer: OwnedWriteHalf,
}

impl FollowStream {
    /// Begins to follow.
    pub(super) async fn open(data: &Path, filter: FollowFilter) -> Result<Self, ControlError> {
        let (reader, writer) = send(data, &GatewayCommand::Follow(filter)).await?;
        Ok(Self { reader, line: Vec::new(), _writer: writer })
    }

    /// Waits for the next event; [`ControlError::Stopped`] once the gateway has ended. If this is cancelled, no event is lost.
    pub(super) async fn next(&mut self) -> Result<Result<FollowEvent, CommandError>, ControlError> {
        read_answer(&mut self.reader, &mut self.line).await
    }
}

#[cfg(test)]
mod tests;
