//! Opens the store and the directory that the configuration names: the only file that names a concrete backend, beside the
//! one of the platform.

use std::path::PathBuf;
use std::sync::Arc;

use super::StartError;
use super::error::data_error;
use crate::config::{Config, StoreTarget};
use crate::directory::copy::{CopyState, DirectoryCopy};
use crate::directory::sql::SqlDirectory;
use crate::directory::sql::postgres::PostgresSettings;
use crate::directory::{Directory, DirectoryError};
use crate::domain::clock::Clock;
use crate::domain::employee::EmployeeSource;
use crate::metrics::Metrics;
use crate::store::Store;
use crate::store::embedded::EmbeddedStore;
use crate::store::redis::RedisStore;

/// The store's file in the data directory.
pub(super) const STORE_FILE: &str = "state.db";

pub(super) async fn open_store(
    config: &Config,
    clock: &Clock,
    metrics: &Arc<Metrics>,
) -> Result<Arc<dyn Store>, StartError> {
    let failed = |place: String| move |source| StartError::Store { place, source };
    match config.store.url.target() {
        Ok(StoreTarget::Redis(_)) => {
            let opened = RedisStore::open(&config.store, clock.clone(), metrics.clone()).await;
            Ok(Arc::new(opened.map_err(failed(store_place(config)))?))
        }
        Ok(StoreTarget::Embedded) | Err(_) => {
            let path = config.server.data_dir.join(STORE_FILE);
            let opened = EmbeddedStore::open(&path, clock.clone()).await;
            Ok(Arc::new(opened.map_err(failed(store_place(config)))?))
        }
    }
}

/// The store's file or servers, without credentials.
pub(super) fn store_place(config: &Config) -> String {
    match config.store.is_shared() {
        true => config.store.url.to_string(),
        false => config.server.data_dir.join(STORE_FILE).display().to_string(),
    }
}

/// Opens the directory as it is.
pub(super) async fn open_sql_directory(config: &Config, clock: &Clock) -> Result<SqlDirectory, StartError> {
    let directory = match postgres_settings(config)? {
        Some(settings) => SqlDirectory::connect(settings, clock.clone()).await,
        None => SqlDirectory::open(&directory_file(config).unwrap_or_default(), clock.clone()).await,
    };
    directory.map_err(|source| directory_error(config, source))
}

/// Opens the directory for use: an unfinished copy is refused.
pub(super) async fn open_directory(config: &Config, clock: &Clock) -> Result<Arc<dyn Directory>, StartError> {
    let failed = |source| directory_error(config, source);
    let directory = open_sql_directory(config, clock).await?;
    match directory.copy_state().await.map_err(failed)? {
        CopyState::Own => {}
        CopyState::Complete => directory.adopt_copy().await.map_err(failed)?,
        CopyState::Unfinished => return Err(StartError::UnfinishedCopy(directory_place(config))),
    }
    if config.server.development && config.directory.employees == EmployeeSource::Own {
        directory.fill_for_development().await.map_err(failed)?;
    }
    Ok(Arc::new(directory))
}

/// The directory's SQLite file; `None` for a server.
pub(super) fn directory_file(config: &Config) -> Option<PathBuf> {
    config.directory.file().map(|file| config.server.data_dir.join(file))
}

/// How to reach the directory's server; `None` for a SQLite file.
fn postgres_settings(config: &Config) -> Result<Option<PostgresSettings>, StartError> {
    let directory = &config.directory;
    let Some(mut url) = directory.server() else { return Ok(None) };
    if let Some(password) = directory.read_password().map_err(data_error(&directory.password_file))? {
        url.password = Some(password);
    }
    let ca_file = Some(directory.ca_file.clone()).filter(|file| !file.as_os_str().is_empty());
    let (employees, pool, timeout) = (directory.employees, directory.pool, directory.timeout.get());
    Ok(Some(PostgresSettings { url, ca_file, employees, pool, timeout }))
}

/// The directory's file or server, without credentials.
pub(super) fn directory_place(config: &Config) -> String {
    match directory_file(config) {
        Some(file) => file.display().to_string(),
        None => config.directory.server().map(|url| url.to_string()).unwrap_or_default(),
    }
}

/// A [`StartError`] that names the directory.
pub(super) fn directory_error(config: &Config, source: DirectoryError) -> StartError {
    StartError::Directory { place: directory_place(config), source }
}
