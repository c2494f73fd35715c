//! `[audit]`: where audit records are written beside the directory.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Faults;

/// The name of the file in `server.data_dir`.
pub const AUDIT_FILE: &str = "audit.log";

/// Where audit records go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditOutput {
    /// To the log, among the other lines.
    Log,
    /// To standard output.
    Stdout,
    /// To a file of their own.
    File,
    /// To the local syslog daemon.
    Syslog,
}

/// `[audit]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// `log`, `stdout`, `file` or `syslog`.
    pub output: AuditOutput,
    /// The file of `output = "file"`; if empty, `audit.log` in `server.data_dir`.
    pub file: PathBuf,
    /// The size at which the file is rotated. 0 leaves that to another program, which sends SIGHUP afterwards.
    pub rotate_bytes: u64,
    /// How many rotated files are kept.
    pub rotate_keep: u32,
    /// The socket of the syslog daemon.
    pub syslog_socket: PathBuf,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            output: AuditOutput::Log,
            file: PathBuf::new(),
            rotate_bytes: 100 * 1024 * 1024,
            rotate_keep: 10,
            syslog_socket: PathBuf::from("/dev/log"),
        }
    }
}

impl AuditConfig {
    /// Fewer bytes would rotate after every few records.
    const LEAST_BYTES: u64 = 64 * 1024;

    pub(super) fn check(&self, faults: &mut Faults) {
        if self.rotate_bytes > 0 && self.rotate_bytes < Self::LEAST_BYTES {
            faults.add("audit.rotate_bytes", "must be 0, to let another program rotate the file, or at least 65536");
        }
        if !(1..=1000).contains(&self.rotate_keep) {
            faults.add("audit.rotate_keep", "must be between 1 and 1000");
        }
        if self.syslog_socket.as_os_str().is_empty() && self.output == AuditOutput::Syslog {
            faults.add("audit.syslog_socket", "must name the socket of the syslog daemon, such as \"/dev/log\"");
        }
    }

    /// The file of `output = "file"`.
    pub fn file_path(&self, data_dir: &Path) -> PathBuf {
        if self.file.as_os_str().is_empty() { data_dir.join(AUDIT_FILE) } else { self.file.clone() }
    }
}
