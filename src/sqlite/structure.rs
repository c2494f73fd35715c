//! Examines the structure of a file: before it is used, or while it is, if a clean stop left the same bytes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection as _, SqliteConnection};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::{SqliteFileError, checksum, damaged, unavailable};

/// How many instructions SQLite executes before it looks whether an examination was ended.
const STEPS_BETWEEN_LOOKS: i32 = 10_000;

/// Fails if the file is damaged.
pub(super) async fn examine(connection: &mut SqliteConnection) -> Result<(), SqliteFileError> {
    let found: String = sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(connection).await.map_err(damaged)?;
    if found == "ok" { Ok(()) } else { Err(damaged(found)) }
}

/// Whether a clean stop left the file as it is.
pub(super) async fn is_as_left(path: &Path) -> bool {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || checksum::matches(&path)).await.unwrap_or(false)
}

/// An examination of a file in use.
#[derive(Default)]
pub(super) struct Examination {
    is_ended: AtomicBool,
    damage: Notify,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Examination {
    /// Examines the file in the background. Damage is reported, and the next start examines the file first.
    pub(super) fn start(self: &Arc<Self>, path: PathBuf, options: SqliteConnectOptions) {
        let examination = self.clone();
        let task = tokio::spawn(async move {
            match examination.run(&options).await {
                Err(SqliteFileError::Damaged(cause)) if !examination.is_ended.load(Ordering::Acquire) => {
                    tracing::error!(file = %path.display(), %cause, "the file is damaged");
                    checksum::remove(&path);
                    examination.damage.notify_one();
                }
                Err(SqliteFileError::Unavailable(error)) => {
                    tracing::warn!(file = %path.display(), %error, "the file could not be examined");
                }
                Ok(()) | Err(SqliteFileError::Damaged(_)) => {}
            }
        });
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    async fn run(self: &Arc<Self>, options: &SqliteConnectOptions) -> Result<(), SqliteFileError> {
        let mut connection = options.connect().await.map_err(unavailable)?;
        let examination = self.clone();
        let goes_on = move || !examination.is_ended.load(Ordering::Acquire);
        connection.lock_handle().await.map_err(unavailable)?.set_progress_handler(STEPS_BETWEEN_LOOKS, goes_on);
        let examined = examine(&mut connection).await;
        // A connection that is dropped closes later.
        connection.close().await.map_err(unavailable)?;
        examined
    }

    /// Resolves when damage was found.
    pub(super) async fn found_damage(&self) {
        self.damage.notified().await;
    }

    /// Ends the examination and waits for its connection to be closed: as long as one is open, the write-ahead log cannot
    /// be moved into the file.
    pub(super) async fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // It fails only if the examination panicked, and then its connection is gone.
            let _ = task.await;
        }
    }
}
