//! Detects changed rule files by polling, which works on every file system and with directories that an orchestrator
//! swaps as a whole. Loading the files is left to `reload`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Names, modification times and sizes of the rule files in a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fingerprint(Vec<(PathBuf, Option<SystemTime>, u64)>);

impl Fingerprint {
    /// Takes the fingerprint of a folder. Call it before reading the files, so that a change in between is detected.
    pub(super) fn of(folder: &Path) -> Self {
        let mut files = Vec::new();
        // A folder that cannot be read looks empty; the load that follows reports the error.
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "toml")
                && let Ok(metadata) = std::fs::metadata(&path)
            {
                files.push((path, metadata.modified().ok(), metadata.len()));
            }
        }
        files.sort();
        Self(files)
    }
}

/// Resolves when the rule files differ from `loaded` and have not changed for one interval, because an editor may still
/// be writing.
pub(super) async fn changed(folder: &Path, loaded: &Fingerprint) {
    let mut tick = tokio::time::interval(POLL_INTERVAL);
    let mut previous = None;
    loop {
        tick.tick().await;
        let current = Fingerprint::of(folder);
        if current != *loaded && previous.as_ref() == Some(&current) {
            return;
        }
        previous = Some(current);
    }
}
