//! Copies a SQLite file while it is in use.

use std::path::Path;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use super::{SqliteFileError, unavailable, wal};

/// Copies the file as it is at one moment, with every change that was acknowledged before. `to` must not exist. Readers
/// and writers go on meanwhile.
pub(crate) async fn copy(from: &Path, to: &Path) -> Result<(), SqliteFileError> {
    wal::check(from)?;
    let options = SqliteConnectOptions::new().filename(from).read_only(true).disable_statement_logging();
    let mut connection = options.connect().await.map_err(unavailable)?;
    let target = to.to_str().ok_or_else(|| unavailable("the path is not valid UTF-8"))?;
    sqlx::query("VACUUM INTO $1").bind(target).execute(&mut connection).await.map_err(unavailable)?;
    connection.close().await.map_err(unavailable)?;
    std::fs::File::open(to).and_then(|copy| copy.sync_all()).map_err(unavailable)
}
