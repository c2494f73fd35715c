//! The control socket in the data directory: CLI commands reach a running gateway through it, and a process that is to replace
//! it. Access control is left to the file's permissions, executing a command to `admin`, and the hand-over to `handover`.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::control_client::SOCKET_FILE;
use super::gateway_control::{GatewayCommand, GatewayControl};
use super::handover::{self, HandOver};
use crate::admin::{Actor, Admin, AdminCommand, CommandError, CommandOutput};
use crate::token::key_file::create_private_folder;

/// Pause after a failed accept, such as without free file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Largest command in bytes; the largest file of links fits.
const MAX_COMMAND_BYTES: u64 = 2 * 1024 * 1024;

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

/// Executes commands, and answers a process that is to replace this one, until the task is cancelled.
pub(super) async fn serve(listener: UnixListener, admin: Arc<Admin>, gateway: GatewayControl, hand_over: HandOver) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (admin, gateway, hand_over) = (admin.clone(), gateway.clone(), hand_over.clone());
                    connections.spawn(async move {
                        if let Err(error) = answer(stream, &admin, &gateway, &hand_over).await {
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

async fn answer(
    mut stream: UnixStream,
    admin: &Admin,
    gateway: &GatewayControl,
    hand_over: &HandOver,
) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    let mut line = String::new();
    BufReader::new((&mut stream).take(MAX_COMMAND_BYTES)).read_line(&mut line).await?;
    if line.trim_end() == handover::REQUEST {
        return hand_over.offer(stream).await;
    }
    if let Ok(command) = serde_json::from_str::<GatewayCommand>(&line) {
        return gateway.answer(command, stream).await;
    }
    let result: Result<CommandOutput, CommandError> = match serde_json::from_str::<AdminCommand>(&line) {
        Ok(command) => admin.execute(Actor::Operator { uid }, command).await,
        Err(_) if line.len() as u64 >= MAX_COMMAND_BYTES => {
            Err(CommandError::Refused("the command is too long".to_owned()))
        }
        Err(_) => Err(CommandError::Unsupported),
    };
    let mut answer = serde_json::to_vec(&result).map_err(io::Error::other)?;
    answer.push(b'\n');
    stream.write_all(&answer).await
}
