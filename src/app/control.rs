//! The socket in the data directory through which commands reach a running gateway. Whoever may open
//! the file may give orders: its permissions are the guard.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use crate::operate::{Command, Done, OperateFault, Operator};

const FILE: &str = "control.sock";

/// How long to wait when no connection can be accepted.
const BREATHER: Duration = Duration::from_millis(50);

/// Longer than any command.
const LONGEST: u64 = 64 * 1024;

/// Why a running gateway could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlFault {
    /// None is running.
    #[error("no gateway is running")]
    NotRunning,
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
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
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
    let (reading, mut writing) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reading.take(LONGEST)).read_line(&mut line).await?;
    let done: Result<Done, OperateFault> = match serde_json::from_str::<Command>(&line) {
        Ok(command) => operator.run(command).await,
        Err(_) => Err(OperateFault::Unknown),
    };
    let mut answer = serde_json::to_vec(&done).map_err(io::Error::other)?;
    answer.push(b'\n');
    writing.write_all(&answer).await
}

/// Asks a running gateway.
pub async fn call(data: &Path, command: &Command) -> Result<Result<Done, OperateFault>, ControlFault> {
    let stream = match UnixStream::connect(data.join(FILE)).await {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Err(ControlFault::NotRunning);
        }
        Err(error) => return Err(error.into()),
    };
    let (reading, mut writing) = stream.into_split();
    let mut order = serde_json::to_vec(command)?;
    order.push(b'\n');
    writing.write_all(&order).await?;
    let mut line = String::new();
    BufReader::new(reading).read_line(&mut line).await?;
    Ok(serde_json::from_str(&line)?)
}
