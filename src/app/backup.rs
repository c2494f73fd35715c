//! Copies the data directory of a gateway, running or not, to a folder that can be used as one.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::StartError;
use super::backends::{STORE_FILE, directory_file};
use super::lock::check_owner;
use crate::config::Config;
use crate::error::chain;
use crate::sqlite::{self, SqliteFileError};
use crate::token::key_file::{create_private_folder, write_private};

/// Why a backup was not made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum BackupError {
    #[error("{}: exists already; name a folder that does not exist", .0.display())]
    TargetExists(PathBuf),
    #[error(
        "nothing to copy: sessions are on Redis, the rest is on PostgreSQL; back these servers up, and keep a copy of \
         server.secret_file"
    )]
    NothingHere,
    #[error(transparent)]
    Data(#[from] StartError),
    #[error("{}: {}", .path.display(), chain(.source))]
    Database { path: PathBuf, source: SqliteFileError },
    #[error("{}: {source}", .path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Copies directory, keys and store to a new folder, except what is on servers, which have backups of their own. Calls
/// `copied` after each file with its name and size.
///
/// The store comes last: a session in the copy was live after the directory was copied, so the copy holds no session
/// that ended before the directory's state. The folder has its name only once it is complete.
pub async fn back_up(config: &Config, target: &Path, mut copied: impl FnMut(&Path, u64)) -> Result<(), BackupError> {
    if !config.uses_data_dir() {
        return Err(BackupError::NothingHere);
    }
    let data = &config.server.data_dir;
    check_owner(data)?;
    if target.exists() {
        return Err(BackupError::TargetExists(target.to_owned()));
    }
    let partial = partial_name(target);
    remove_folder(&partial)?;
    let keys = Path::new("keys");
    create_folder_of(&partial.join(keys).join("key"))?;
    if let Some(directory) = directory_file(config) {
        // A file outside of the data directory keeps its name only.
        let outside = || directory.file_name().map(PathBuf::from).unwrap_or_default();
        let name = directory.strip_prefix(data).map_or_else(|_| outside(), Path::to_owned);
        create_folder_of(&partial.join(&name))?;
        copied(&name, copy_database(&directory, &partial.join(&name)).await?);
    }
    for name in key_files(&data.join(keys))? {
        let name = keys.join(name);
        copied(&name, copy_file(&data.join(&name), &partial.join(&name))?);
    }
    if !config.store.is_shared() {
        copied(Path::new(STORE_FILE), copy_database(&data.join(STORE_FILE), &partial.join(STORE_FILE)).await?);
    }
    std::fs::rename(&partial, target).map_err(file_error(target))?;
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(file_error(parent))
}

fn create_folder_of(file: &Path) -> Result<(), BackupError> {
    let folder = file.parent().unwrap_or(Path::new(""));
    create_private_folder(folder).map_err(file_error(folder))
}

/// The folder's name until it is complete.
fn partial_name(target: &Path) -> PathBuf {
    let mut name = OsString::from(target);
    name.push(".partial");
    name.into()
}

/// Removes what an interrupted backup left behind.
fn remove_folder(folder: &Path) -> Result<(), BackupError> {
    match std::fs::remove_dir_all(folder) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(file_error(folder)(source)),
        _ => Ok(()),
    }
}

fn key_files(folder: &Path) -> Result<Vec<OsString>, BackupError> {
    let entries = match std::fs::read_dir(folder) {
        // The keys of a fleet are in the directory.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(file_error(folder))?,
    };
    let names: io::Result<Vec<OsString>> = entries.map(|entry| entry.map(|entry| entry.file_name())).collect();
    let mut names = names.map_err(file_error(folder))?;
    names.sort();
    Ok(names)
}

async fn copy_database(from: &Path, to: &Path) -> Result<u64, BackupError> {
    let failed = |source| BackupError::Database { path: from.to_owned(), source };
    sqlite::copy(from, to).await.map_err(failed)?;
    std::fs::metadata(to).map(|copy| copy.len()).map_err(file_error(to))
}

fn copy_file(from: &Path, to: &Path) -> Result<u64, BackupError> {
    let bytes = std::fs::read(from).map_err(file_error(from))?;
    write_private(to, &bytes).map_err(file_error(to))?;
    Ok(bytes.len() as u64)
}

fn file_error(path: &Path) -> impl Fn(io::Error) -> BackupError {
    move |source| BackupError::File { path: path.to_owned(), source }
}
