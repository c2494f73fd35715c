//! Reads a write-ahead log before SQLite does. SQLite ignores everything after the first frame that does not fit, and
//! a whole log with a bad header, without a word: acknowledged logouts would be undone.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::identity::wal_of;
use super::{SqliteFileError, damaged, unavailable};

const HEADER_BYTES: usize = 32;

const FRAME_HEADER_BYTES: usize = 24;

/// The first word of a log; its last bit says that checksums read words in big-endian order.
const MAGIC: u32 = 0x377f_0682;

const FORMAT_VERSION: u32 = 3_007_000;

const PAGE_BYTES: std::ops::RangeInclusive<u32> = 512..=65_536;

/// Refuses the log of a database file if changes in it were committed and can no longer be read.
pub(super) fn check(database: &Path) -> Result<(), SqliteFileError> {
    let path = wal_of(database);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unavailable(error)),
    };
    match inspect(BufReader::with_capacity(1 << 20, file)).map_err(unavailable)? {
        LogState::Readable => Ok(()),
        LogState::BadHeader => Err(lost(&path, "its header is damaged")),
        LogState::LostCommits => Err(lost(&path, "it is damaged in the middle")),
    }
}

fn lost(path: &Path, what: &str) -> SqliteFileError {
    let path = path.display();
    damaged(format!(
        "{path}: {what}, so the latest changes cannot be read; restore the files from a backup, or move {path} away to \
         start without those changes"
    ))
}

#[derive(Debug, PartialEq, Eq)]
enum LogState {
    /// Every change that was acknowledged can be read. An unfinished one at the end is normal after a crash.
    Readable,
    BadHeader,
    /// A damaged frame is followed by at least one commit that was acknowledged.
    LostCommits,
}

fn inspect(mut log: impl Read) -> io::Result<LogState> {
    let mut header = [0; HEADER_BYTES];
    let length = read_up_to(&mut log, &mut header)?;
    // The header is synced before the first commit is acknowledged, so without one nothing was.
    if length < HEADER_BYTES || header == [0; HEADER_BYTES] {
        return Ok(LogState::Readable);
    }
    let Some(header) = LogHeader::parse(&header) else { return Ok(LogState::BadHeader) };
    let mut frame = vec![0; FRAME_HEADER_BYTES + header.page_bytes];
    let mut checksum = header.checksum;
    let mut is_broken = false;
    let mut commits_after_break = 0;
    while read_up_to(&mut log, &mut frame)? == frame.len() {
        if frame[8..16] != header.salts {
            // Left over from before the log was last emptied.
            break;
        }
        // The unfinished commit of a crash may have its last frame on disk without an earlier one. Only a frame after it
        // shows that it was acknowledged.
        if commits_after_break > 0 {
            return Ok(LogState::LostCommits);
        }
        checksum = checksum.add(&frame[..8]).add(&frame[FRAME_HEADER_BYTES..]);
        is_broken |= checksum.bytes() != frame[16..24];
        let is_commit = frame[4..8] != [0; 4];
        commits_after_break += u32::from(is_broken && is_commit);
    }
    Ok(LogState::Readable)
}

struct LogHeader {
    page_bytes: usize,
    salts: [u8; 8],
    checksum: Checksum,
}

impl LogHeader {
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (magic, page_bytes) = (word(0), word(8));
        let start = Checksum { words: (0, 0), big_endian: magic & 1 == 1 };
        let checksum = start.add(&bytes[..24]);
        let fits = magic & !1 == MAGIC
            && word(4) == FORMAT_VERSION
            && PAGE_BYTES.contains(&page_bytes)
            && page_bytes.is_power_of_two()
            && checksum.bytes() == bytes[24..];
        let salts = bytes[16..24].try_into().ok()?;
        fits.then_some(Self { page_bytes: usize::try_from(page_bytes).ok()?, salts, checksum })
    }
}

/// SQLite's checksum of a log, which each frame continues.
#[derive(Clone, Copy)]
struct Checksum {
    words: (u32, u32),
    big_endian: bool,
}

impl Checksum {
    /// Continues with bytes, a multiple of eight.
    fn add(self, bytes: &[u8]) -> Self {
        let (mut first, mut second) = self.words;
        let word = |bytes: [u8; 4]| match self.big_endian {
            true => u32::from_be_bytes(bytes),
            false => u32::from_le_bytes(bytes),
        };
        let (pairs, _) = bytes.as_chunks::<8>();
        for [a, b, c, d, e, f, g, h] in pairs {
            first = first.wrapping_add(word([*a, *b, *c, *d])).wrapping_add(second);
            second = second.wrapping_add(word([*e, *f, *g, *h])).wrapping_add(first);
        }
        Self { words: (first, second), ..self }
    }

    /// As a header stores it.
    fn bytes(self) -> [u8; 8] {
        let (first, second) = self.words;
        (u64::from(first) << 32 | u64::from(second)).to_be_bytes()
    }
}

/// Fills the buffer as far as there are bytes, and returns how many there were.
fn read_up_to(log: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match log.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests;
