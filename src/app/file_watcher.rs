//! Detects changed files by polling, which works on every file system and with directories that an orchestrator swaps as
//! a whole. Loading the files is left to `reload` and `tls`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Names, modification times, sizes and inodes of files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fingerprint(Vec<(PathBuf, Option<FileState>)>);

/// What a file looks like; symbolic links are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FileState {
    modified: Option<SystemTime>,
    size: u64,
    /// A file that was moved into place may be as old and as long as the one before.
    inode: u64,
}

impl FileState {
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self { modified: metadata.modified().ok(), size: metadata.len(), inode: metadata.ino() })
    }
}

impl Fingerprint {
    /// Takes the fingerprint of the rule files in a folder. Call it before reading the files, so that a change in between is
    /// detected.
    pub(super) fn of_rules(folder: &Path) -> Self {
        let mut files = Vec::new();
        // A folder that cannot be read looks empty; the load that follows reports the error.
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "toml")
                && let Some(state) = FileState::of(&path)
            {
                files.push((path, Some(state)));
            }
        }
        files.sort();
        Self(files)
    }

    /// Takes the fingerprint of these files; a missing one has a fingerprint, too.
    pub(super) fn of_files<'a>(paths: impl Iterator<Item = &'a Path>) -> Self {
        Self(paths.map(|path| (path.to_owned(), FileState::of(path))).collect())
    }
}

/// Resolves when `difference` has returned the same fingerprint for one interval: an editor may still be writing. It returns
/// `None` while the files are those that were loaded.
pub(super) async fn changed(difference: impl Fn() -> Option<Fingerprint>) {
    let mut tick = tokio::time::interval(POLL_INTERVAL);
    let mut previous = None;
    loop {
        tick.tick().await;
        let current = difference();
        if current.is_some() && current == previous {
            return;
        }
        previous = current;
    }
}
