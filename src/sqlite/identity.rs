//! Whether the files at a path are still the ones that were opened. Writing to a deleted file succeeds, and is lost.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A database file and its write-ahead log, as they were when they were opened.
pub(super) struct FileIdentity {
    database: (PathBuf, FileNumber),
    wal: (PathBuf, FileNumber),
}

/// Device and inode.
type FileNumber = (u64, u64);

impl FileIdentity {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let numbered = |path: PathBuf| number(&path).map(|number| (path, number));
        Ok(Self { database: numbered(path.to_owned())?, wal: numbered(wal_of(path))? })
    }

    /// Fails if a file was deleted, replaced or unmounted.
    pub(super) fn check(&self) -> io::Result<()> {
        self.check_database()?;
        check_one(&self.wal)
    }

    /// The same for the database file alone.
    pub(super) fn check_database(&self) -> io::Result<()> {
        check_one(&self.database)
    }

    /// Accepts the write-ahead log that is there now: SQLite begins a new one when a file is opened again.
    pub(super) fn accept_wal(&mut self) -> io::Result<()> {
        self.wal.1 = number(&self.wal.0)?;
        Ok(())
    }

    /// The database file.
    pub(super) fn path(&self) -> &Path {
        &self.database.0
    }
}

/// The write-ahead log of a database file.
pub(super) fn wal_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push("-wal");
    name.into()
}

fn check_one((path, opened): &(PathBuf, FileNumber)) -> io::Result<()> {
    if number(path).ok() == Some(*opened) {
        return Ok(());
    }
    let text = format!("{} was deleted or replaced; restore it and restart deskgate", path.display());
    Err(io::Error::new(io::ErrorKind::NotFound, text))
}

fn number(path: &Path) -> io::Result<FileNumber> {
    std::fs::metadata(path).map(|file| (file.dev(), file.ino()))
}
