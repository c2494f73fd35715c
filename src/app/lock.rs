//! One process per data directory.

use std::fs::{File, TryLockError};
use std::path::Path;

use super::StartFault;

/// Held while a process works with a data directory; the kernel lets go of it with the process.
#[derive(Debug)]
pub struct DataLock {
    _file: File,
}

impl DataLock {
    /// Takes the lock, or says that somebody else has it.
    pub fn take(data: &Path) -> Result<Self, StartFault> {
        let path = data.join("lock");
        let fault = |source| StartFault::Data { path: path.clone(), source };
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(fault)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StartFault::Locked(data.to_owned())),
            Err(TryLockError::Error(source)) => Err(fault(source)),
        }
    }
}
