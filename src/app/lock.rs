//! Prepares and locks the data directory, so that only one process works with it. What the directory holds is up to
//! the store, the directory and the key ring.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::StartError;
use super::backends::STORE_FILE;
use crate::config::AUDIT_FILE;
use crate::token::key_file::create_private_folder;

const LOCK_FILE: &str = "lock";

/// Entries that may exist before the first start: keys that an operator installed, what the root of a volume holds, and the
/// audit file, which is opened first.
const EXPECTED_ENTRIES: [&str; 3] = ["keys", "lost+found", AUDIT_FILE];

/// How long a start waits for a command that holds the lock; longer than any command takes.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The lock on a data directory; the kernel releases it when the process ends, and the one that it was passed on to.
#[derive(Debug)]
pub struct DataLock {
    file: File,
}

/// A lock that another process has passed on.
impl From<OwnedFd> for DataLock {
    fn from(descriptor: OwnedFd) -> Self {
        Self { file: File::from(descriptor) }
    }
}

impl DataLock {
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The same lock: it is released when all duplicates are closed, in whichever process.
    pub(super) fn duplicate(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()? })
    }

    /// Creates the data directory if it is missing, and locks it.
    pub(super) async fn acquire(data: &Path) -> Result<Self, StartError> {
        check_contents(data)?;
        create_private_folder(data).map_err(|source| StartError::Data { path: data.to_owned(), source })?;
        let started = Instant::now();
        loop {
            match Self::try_acquire(data) {
                Err(StartError::Locked(_)) if started.elapsed() < LOCK_TIMEOUT => {
                    tokio::time::sleep(LOCK_RETRY_INTERVAL).await;
                }
                result => return result,
            }
        }
    }

    /// Locks the data directory for a command. A command creates no directory, and leaves no file behind that the
    /// gateway's user could not read.
    pub(super) fn acquire_for_command(data: &Path) -> Result<Self, StartError> {
        check_owner(data)?;
        check_contents(data)?;
        create_private_folder(data).map_err(|source| StartError::Data { path: data.to_owned(), source })?;
        Self::try_acquire(data)
    }

    fn try_acquire(data: &Path) -> Result<Self, StartError> {
        let path = data.join(LOCK_FILE);
        let failed = |source| StartError::Data { path: path.clone(), source };
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file }),
            Err(TryLockError::WouldBlock) => Err(StartError::Locked(data.to_owned())),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}

/// Refuses a data directory that does not exist or belongs to another user.
pub(super) fn check_owner(data: &Path) -> Result<(), StartError> {
    let owner = match std::fs::metadata(data) {
        Ok(data) => data.uid(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(StartError::NoData(data.to_owned())),
        Err(source) => return Err(StartError::Data { path: data.to_owned(), source }),
    };
    if owner != nix::unistd::geteuid().as_raw() {
        return Err(StartError::DataOwner { path: data.to_owned(), owner });
    }
    Ok(())
}

/// Refuses a directory that holds other files than deskgate's; changes nothing.
pub(super) fn check_contents(data: &Path) -> Result<(), StartError> {
    let foreign = |name: &OsStr| !EXPECTED_ENTRIES.iter().any(|expected| name == *expected);
    let empty = match std::fs::read_dir(data) {
        Ok(entries) => !entries.flatten().any(|entry| foreign(&entry.file_name())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(source) => return Err(StartError::Data { path: data.to_owned(), source }),
    };
    // The store's file alone: restored from a copy.
    let ours = [LOCK_FILE, STORE_FILE].iter().any(|name| data.join(name).exists());
    if empty || ours { Ok(()) } else { Err(StartError::ForeignData(data.to_owned())) }
}
