//! A wall clock that a test moves while the gateway runs; its monotonic clock goes on undisturbed.

use std::path::{Path, PathBuf};

/// The wall clock of a gateway, moved by libfaketime.
#[derive(Clone)]
pub struct MovableClock {
    library: PathBuf,
    offset: PathBuf,
}

impl MovableClock {
    /// The clock is right until [`MovableClock::set_offset`].
    pub(super) fn create(folder: &Path) -> MovableClock {
        let clock = MovableClock { library: libfaketime(), offset: folder.join("clock_offset") };
        clock.set_offset(0);
        clock
    }

    /// Sets the clock this many seconds ahead of the real time, or behind it.
    pub fn set_offset(&self, seconds: i64) {
        // Replaced as a whole: the library reads the file at any moment.
        let next = self.offset.with_extension("next");
        std::fs::write(&next, format!("{seconds:+}\n")).expect("an offset file");
        std::fs::rename(&next, &self.offset).expect("an offset file");
    }

    pub(super) fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("LD_PRELOAD", self.library.clone()),
            ("FAKETIME_TIMESTAMP_FILE", self.offset.clone()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("NO_FAKE_STAT", "1".into()),
        ]
    }
}

/// The library of Debian's package `faketime`, whose folder differs between architectures.
fn libfaketime() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").expect("/usr/lib").flatten().map(|entry| entry.path());
    let mut libraries = folders.map(|folder| folder.join("faketime").join("libfaketimeMT.so.1"));
    libraries.find(|library| library.exists()).expect("libfaketimeMT.so.1: install the package `faketime`")
}
