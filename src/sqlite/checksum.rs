//! The checksum of a file as a clean stop left it. A start that finds the same bytes need not examine their structure
//! first, which takes seconds with a million sessions; it does so while it serves.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::identity::wal_of;

/// The size of a read.
const PIECE: usize = 1 << 20;

/// Writes the checksum of a closed file beside it. A file that was not completed gets none.
pub(super) fn write(database: &Path) -> io::Result<()> {
    if wal_of(database).exists() {
        return Ok(());
    }
    let checksum = compute(database)?;
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(checksum_of(database))?;
    file.write_all(checksum.as_bytes())
}

/// Whether the file is, byte for byte, what a clean stop left.
pub(super) fn matches(database: &Path) -> bool {
    if wal_of(database).exists() {
        return false;
    }
    let Ok(expected) = std::fs::read_to_string(checksum_of(database)) else { return false };
    compute(database).is_ok_and(|found| found == expected)
}

/// Lets the next start examine the file.
pub(super) fn remove(database: &Path) {
    if let Err(error) = std::fs::remove_file(checksum_of(database)) {
        tracing::warn!(file = %database.display(), %error, "the checksum could not be removed");
    }
}

fn compute(database: &Path) -> io::Result<String> {
    let (mut file, mut piece) = (File::open(database)?, vec![0; PIECE]);
    let (mut checksum, mut length) = (crc32fast::Hasher::new(), 0);
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            return Ok(format!("crc32 {:08x} of {length} bytes\n", checksum.finalize()));
        }
        checksum.update(&piece[..count]);
        length += count as u64;
    }
}

fn checksum_of(database: &Path) -> PathBuf {
    let mut name = OsString::from(database);
    name.push("-checksum");
    name.into()
}
