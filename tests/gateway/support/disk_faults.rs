//! A disk that is slow or fails, for the gateway's database files.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Faults of the disk, which a test switches on and off while the gateway runs. See `tests/faults/disk_faults.c`.
#[derive(Clone)]
pub struct DiskFaults {
    library: PathBuf,
    control: PathBuf,
}

impl DiskFaults {
    /// Builds the library. The disk works until [`DiskFaults::set`].
    pub(super) fn build(folder: &Path) -> DiskFaults {
        let faults = DiskFaults { library: folder.join("disk_faults.so"), control: folder.join("disk_faults") };
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/disk_faults.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&faults.library)
            .args([source, "-ldl"])
            .status()
            .expect("a C compiler");
        assert!(built.success(), "the library does not build");
        faults.clear();
        faults
    }

    /// Sets faults, as `key=value` lines.
    pub fn set(&self, lines: &[&str]) {
        // Replaced as a whole: the library reads the file at any moment.
        let next = self.control.with_extension("next");
        std::fs::write(&next, lines.join("\n")).expect("a control file");
        std::fs::rename(&next, &self.control).expect("a control file");
    }

    /// The disk works again.
    pub fn clear(&self) {
        self.set(&[]);
    }

    pub(super) fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        vec![("LD_PRELOAD", self.library.clone()), ("DISK_FAULTS", self.control.clone())]
    }
}
