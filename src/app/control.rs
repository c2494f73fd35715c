//! The socket in the data directory through which commands reach a running gateway. Whoever may open
//! the file may give orders: its permissions are the guard.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use crate::admin::{self, AdminError, Command, Done, Operator};

const FILE: &str = "control.sock";

/// How long to wait when no connection can be accepted.
const BREATHER: Duration = Duration::from_millis(50);

/// How long an order may take: ending all sessions of a key is the longest.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longer than any command.
const LONGEST: u64 = 64 * 1024;

/// Why a running gateway could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlFault {
    /// None is running.
    #[error("no gateway is running")]
    NotRunning,
    /// Somebody else's.
    #[error("{0}: only the user who runs the gateway, and root, may give it orders")]
    NotAllowed(PathBuf),
    /// It runs, and says nothing.
    #[error("the running gateway does not answer; it may still carry the order out")]
    Silent,
    /// It ran, and ended meanwhile.
    #[error("the gateway ended before it answered; it may have carried the order out")]
    Ended,
    /// It runs, and something went wrong on the way.
    #[error("the running gateway could not be asked: {0}")]
    Broken(#[from] io::Error),
    /// It answered something else than it should.
    #[error("the running gateway is of another version")]
    Version(#[from] serde_json::Error),
}

/// Listens for commands. The data lock is held, so a file that is there is a dead process's.
pub(super) fn open(data: &Path, operator: Operator) -> io::Result<()> {
    let path = data.join(FILE);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Where nobody else can look, until nobody else can open it.
    let hidden = data.join("keys").join(FILE);
    let _ = std::fs::remove_file(&hidden);
    let listener = UnixListener::bind(&hidden)?;
    std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&hidden, &path)?;
    let operator = Arc::new(operator);
    tokio::spawn(async move {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely; it must not be the end of all commands.
                    tracing::warn!(%error, "a command could not be accepted");
                    tokio::time::sleep(BREATHER).await;
                    continue;
                }
            };
            let operator = operator.clone();
            tokio::spawn(async move {
                if let Err(error) = answer(stream, &operator).await {
                    tracing::warn!(%error, "a command could not be answered");
                }
            });
        }
    });
    Ok(())
}

async fn answer(stream: UnixStream, operator: &Operator) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    let (reading, mut writing) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reading.take(LONGEST)).read_line(&mut line).await?;
    let done: Result<Done, AdminError> = match serde_json::from_str::<Command>(&line) {
        Ok(command) => admin::as_operator(uid, operator.run(command)).await,
        Err(_) if line.len() as u64 >= LONGEST => Err(AdminError::Refused("the order is too long".to_owned())),
        Err(_) => Err(AdminError::Unknown),
    };
    let mut answer = serde_json::to_vec(&done).map_err(io::Error::other)?;
    answer.push(b'\n');
    writing.write_all(&answer).await
}

/// Asks a running gateway.
pub async fn call(data: &Path, command: &Command) -> Result<Result<Done, AdminError>, ControlFault> {
    call_within(PATIENCE, data, command).await
}

async fn call_within(
    patience: Duration,
    data: &Path,
    command: &Command,
) -> Result<Result<Done, AdminError>, ControlFault> {
    let path = data.join(FILE);
    let stream = match UnixStream::connect(&path).await {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Err(ControlFault::NotRunning);
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(ControlFault::NotAllowed(path)),
        Err(error) => return Err(error.into()),
    };
    let (reading, mut writing) = stream.into_split();
    let mut order = serde_json::to_vec(command)?;
    order.push(b'\n');
    writing.write_all(&order).await?;
    let mut line = String::new();
    let mut reading = BufReader::new(reading);
    tokio::time::timeout(patience, reading.read_line(&mut line)).await.map_err(|_| ControlFault::Silent)??;
    if line.ends_with('\n') { Ok(serde_json::from_str(&line)?) } else { Err(ControlFault::Ended) }
}

#[cfg(test)]
mod tests;
