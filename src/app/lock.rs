//! One process per data directory.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::StartFault;
use crate::token::key_file::create_private_folder;

const FILE: &str = "lock";

/// What may be there before the first start: keys that were put there, and what the root of a volume holds.
const EXPECTED: [&str; 2] = ["keys", "lost+found"];

/// Longer than a command takes.
const PATIENCE: Duration = Duration::from_secs(2);

const BREATHER: Duration = Duration::from_millis(50);

/// Held while a process works with a data directory; the kernel lets go of it with the process.
#[derive(Debug)]
pub struct DataLock {
    _file: File,
}

impl DataLock {
    /// Makes the directory a private one of ours. One that is somebody else's is left alone.
    pub(super) fn prepare(data: &Path) -> Result<(), StartFault> {
        let fault = |source| StartFault::Data { path: data.to_owned(), source };
        let foreign = |name: &OsStr| !EXPECTED.iter().any(|own| name == *own);
        let empty = match std::fs::read_dir(data) {
            Ok(entries) => !entries.flatten().any(|entry| foreign(&entry.file_name())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(fault(error)),
        };
        if !empty && !data.join(FILE).exists() {
            return Err(StartFault::NotOurs(data.to_owned()));
        }
        create_private_folder(data).map_err(fault)
    }

    /// The same for a command, which makes no directory, and leaves no file that the gateway's user could not read.
    pub(super) fn prepare_for_command(data: &Path) -> Result<(), StartFault> {
        let fault = |source| StartFault::Data { path: data.to_owned(), source };
        let owner = match std::fs::metadata(data) {
            Ok(data) => data.uid(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StartFault::NoData(data.to_owned()));
            }
            Err(error) => return Err(fault(error)),
        };
        if owner != nix::unistd::geteuid().as_raw() {
            return Err(StartFault::OthersData { path: data.to_owned(), owner });
        }
        Self::prepare(data)
    }

    /// Takes the lock, waiting a moment for a command that has it; or says that somebody else has it.
    pub(super) async fn wait(data: &Path) -> Result<Self, StartFault> {
        let begun = Instant::now();
        loop {
            match Self::take(data) {
                Err(StartFault::Locked(_)) if begun.elapsed() < PATIENCE => tokio::time::sleep(BREATHER).await,
                taken => return taken,
            }
        }
    }

    /// Takes the lock, or says that somebody else has it.
    pub fn take(data: &Path) -> Result<Self, StartFault> {
        let path = data.join(FILE);
        let fault = |source| StartFault::Data { path: path.clone(), source };
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(fault)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StartFault::Locked(data.to_owned())),
            Err(TryLockError::Error(source)) => Err(fault(source)),
        }
    }
}
