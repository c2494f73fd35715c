//! The stream of audit records: a file that is rotated, standard output or the local syslog daemon. A copy of what the
//! directory keeps: when a line cannot be written it is counted and reported, and the record is still in the directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::lock::check_contents;
use crate::config::{AuditConfig, AuditOutput};
use crate::token::key_file::create_private_folder;

/// How long the syslog daemon may take to accept a record.
const SYSLOG_TIMEOUT: Duration = Duration::from_secs(2);

/// Facility `authpriv`, severity `info`.
const PRIORITY: u8 = 10 * 8 + 6;

/// Whether the process rotates the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotation {
    /// By size, as configured.
    BySize,
    /// Not at all: a command appends a few lines, and a gateway may have the file open.
    Never,
}

/// Where audit lines are written.
#[derive(Debug)]
pub struct AuditStream {
    sink: Mutex<AuditSink>,
    failed: AtomicU64,
}

#[derive(Debug)]
struct AuditSink {
    target: AuditTarget,
    /// How many lines were lost since one was last written.
    failing: u64,
}

#[derive(Debug)]
enum AuditTarget {
    Stdout,
    File(AuditFile),
    Syslog(Syslog),
}

impl AuditStream {
    /// Opens the stream of the configuration; None if audit records are log lines. Fails, with the key that is to blame,
    /// if nothing could be written.
    pub fn open(config: &AuditConfig, data_dir: &Path, rotation: Rotation) -> Result<Option<Arc<Self>>, String> {
        let target = match config.output {
            AuditOutput::Log => return Ok(None),
            AuditOutput::Stdout => AuditTarget::Stdout,
            AuditOutput::File => {
                let path = config.file_path(data_dir);
                let bytes = Some(config.rotate_bytes).filter(|bytes| *bytes > 0 && rotation == Rotation::BySize);
                let failed = |error| format!("audit.file: {}: {error}", path.display());
                if path.parent() == Some(data_dir) {
                    // The log begins before the data directory is opened.
                    check_contents(data_dir).map_err(|error| error.to_string())?;
                    create_private_folder(data_dir).map_err(failed)?;
                }
                let file = AuditFile::open(path.clone(), bytes, config.rotate_keep).map_err(failed)?;
                AuditTarget::File(file)
            }
            AuditOutput::Syslog => {
                let mut syslog = Syslog { path: config.syslog_socket.clone(), socket: None };
                let failed = |error| format!("audit.syslog_socket: {}: {error}", config.syslog_socket.display());
                syslog.connect().map_err(failed)?;
                AuditTarget::Syslog(syslog)
            }
        };
        let sink = AuditSink { target, failing: 0 };
        Ok(Some(Arc::new(Self { sink: Mutex::new(sink), failed: AtomicU64::new(0) })))
    }

    /// How many lines could not be written since the start.
    pub(super) fn failed_lines(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Opens the file again, which another program may have renamed.
    pub(super) fn reopen(&self) -> io::Result<()> {
        match &mut self.sink().target {
            AuditTarget::File(file) => file.reopen(),
            AuditTarget::Stdout | AuditTarget::Syslog(_) => Ok(()),
        }
    }

    fn write_line(&self, line: &[u8]) {
        let mut sink = self.sink();
        match sink.target.write(line) {
            Ok(()) if sink.failing > 0 => {
                let lines = std::mem::take(&mut sink.failing);
                tracing::info!(
                    lines,
                    "audit lines can be written again; the lost ones are in the audit log of the directory"
                );
            }
            Ok(()) => {}
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                sink.failing += 1;
                if sink.failing == 1 {
                    tracing::error!(%error, "audit lines cannot be written; the audit log of the directory has them");
                }
            }
        }
    }

    fn sink(&self) -> MutexGuard<'_, AuditSink> {
        self.sink.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AuditTarget {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            AuditTarget::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(line)?;
                out.flush()
            }
            AuditTarget::File(file) => file.write(line),
            AuditTarget::Syslog(syslog) => syslog.send(line),
        }
    }
}

/// Writes whole lines to the stream. Never fails: the stream counts and reports what it cannot write.
#[derive(Debug)]
pub struct AuditWriter(pub Arc<AuditStream>);

impl Write for AuditWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file that is rotated by size: `audit.log` becomes `audit.log.1`, that `audit.log.2` and so on.
#[derive(Debug)]
struct AuditFile {
    path: PathBuf,
    file: File,
    size: u64,
    /// None without rotation.
    most_bytes: Option<u64>,
    keep: u32,
}

impl AuditFile {
    fn open(path: PathBuf, most_bytes: Option<u64>, keep: u32) -> io::Result<Self> {
        let (file, size) = append_to(&path)?;
        Ok(Self { path, file, size, most_bytes, keep })
    }

    fn reopen(&mut self) -> io::Result<()> {
        (self.file, self.size) = append_to(&self.path)?;
        Ok(())
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let is_full = self.most_bytes.is_some_and(|most| self.size > 0 && self.size + line.len() as u64 > most);
        if is_full && let Err(error) = self.rotate() {
            // The file grows beyond its size, but no line is lost.
            tracing::error!(%error, file = %self.path.display(), "the audit file cannot be rotated");
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..self.keep).rev() {
            rename_if_there(&self.rotated(number), &self.rotated(number + 1))?;
        }
        rename_if_there(&self.path, &self.rotated(1))?;
        self.reopen()
    }

    fn rotated(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Opens a file for appending and returns its size. Only its owner may read a new one: it names employees.
fn append_to(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

/// The local syslog daemon, spoken to as RFC 3164 describes it, without a time: the daemon sets its own, and the record
/// has the exact one.
#[derive(Debug)]
struct Syslog {
    path: PathBuf,
    socket: Option<SyslogSocket>,
}

#[derive(Debug)]
enum SyslogSocket {
    Datagram(UnixDatagram),
    Stream(UnixStream),
}

impl Syslog {
    fn connect(&mut self) -> io::Result<&mut SyslogSocket> {
        let datagram = UnixDatagram::unbound()?;
        datagram.set_write_timeout(Some(SYSLOG_TIMEOUT))?;
        let socket = match datagram.connect(&self.path) {
            Ok(()) => SyslogSocket::Datagram(datagram),
            // Some daemons have a stream socket.
            Err(error) if error.raw_os_error() == Some(nix::libc::EPROTOTYPE) => {
                let stream = UnixStream::connect(&self.path)?;
                stream.set_write_timeout(Some(SYSLOG_TIMEOUT))?;
                SyslogSocket::Stream(stream)
            }
            Err(error) => return Err(error),
        };
        Ok(self.socket.insert(socket))
    }

    fn send(&mut self, line: &[u8]) -> io::Result<()> {
        let mut message = format!("<{PRIORITY}>deskgate[{}]: ", std::process::id()).into_bytes();
        message.extend_from_slice(line.trim_ascii_end());
        if let Some(socket) = &mut self.socket
            && socket.send(&message).is_ok()
        {
            return Ok(());
        }
        // The daemon was restarted.
        self.socket = None;
        self.connect()?.send(&message)
    }
}

impl SyslogSocket {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            SyslogSocket::Datagram(socket) => socket.send(message).map(|_| ()),
            // On a stream a zero byte ends a message.
            SyslogSocket::Stream(socket) => socket.write_all(message).and_then(|()| socket.write_all(&[0])),
        }
    }
}

#[cfg(test)]
mod tests;
