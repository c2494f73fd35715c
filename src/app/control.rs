//! The control socket in the data directory: CLI commands reach a running gateway through it. Access control is left to
//! the file's permissions, and executing a command to `admin`.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::admin::{Actor, Admin, AdminCommand, CommandError, CommandOutput};
use crate::token::key_file::create_private_folder;

const SOCKET_FILE: &str = "control.sock";

/// Pause after a failed accept, such as without free file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Longest wait for a command's result; ending all sessions of a key takes longest.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Largest command in bytes; the largest file of links fits.
const MAX_COMMAND_BYTES: u64 = 2 * 1024 * 1024;

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

/// Binds the socket. The caller holds the data lock, so an existing file belongs to a dead process.
pub(super) fn bind(data: &Path) -> io::Result<UnixListener> {
    let path = data.join(SOCKET_FILE);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Bound in a folder that only the owner can enter, and moved once its permissions are set.
    let folder = data.join("keys");
    create_private_folder(&folder)?;
    let hidden = folder.join(SOCKET_FILE);
    let _ = std::fs::remove_file(&hidden);
    let listener = UnixListener::bind(&hidden)?;
    std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&hidden, &path)?;
    Ok(listener)
}

/// Executes commands until the task is cancelled.
pub(super) async fn serve(listener: UnixListener, admin: Arc<Admin>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let admin = admin.clone();
                    connections.spawn(async move {
                        if let Err(error) = answer(stream, &admin).await {
                            tracing::warn!(%error, "could not answer a command");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "control socket could not accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a command panicked");
                }
            }
        }
    }
}

async fn answer(stream: UnixStream, admin: &Admin) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reader.take(MAX_COMMAND_BYTES)).read_line(&mut line).await?;
    let result: Result<CommandOutput, CommandError> = match serde_json::from_str::<AdminCommand>(&line) {
        Ok(command) => admin.execute(Actor::Operator { uid }, command).await,
        Err(_) if line.len() as u64 >= MAX_COMMAND_BYTES => {
            Err(CommandError::Refused("the command is too long".to_owned()))
        }
        Err(_) => Err(CommandError::Unsupported),
    };
    let mut answer = serde_json::to_vec(&result).map_err(io::Error::other)?;
    answer.push(b'\n');
    writer.write_all(&answer).await
}

/// Sends a command to the gateway that runs on this data directory, and returns its result.
pub async fn send_command(
    data: &Path,
    command: &AdminCommand,
) -> Result<Result<CommandOutput, CommandError>, ControlError> {
    send_within(COMMAND_TIMEOUT, data, command).await
}

async fn send_within(
    timeout: Duration,
    data: &Path,
    command: &AdminCommand,
) -> Result<Result<CommandOutput, CommandError>, ControlError> {
    let path = data.join(SOCKET_FILE);
    let stream = match UnixStream::connect(&path).await {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Err(ControlError::NotRunning);
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(ControlError::NotAllowed(path)),
        Err(error) => return Err(error.into()),
    };
    let (reader, mut writer) = stream.into_split();
    let mut request = serde_json::to_vec(command)?;
    request.push(b'\n');
    writer.write_all(&request).await?;
    let mut line = String::new();
    let mut reader = BufReader::new(reader);
    tokio::time::timeout(timeout, reader.read_line(&mut line)).await.map_err(|_| ControlError::Timeout)??;
    if line.ends_with('\n') { Ok(serde_json::from_str(&line)?) } else { Err(ControlError::Stopped) }
}

#[cfg(test)]
mod tests;
