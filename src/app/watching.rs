//! Notices that rule files have changed, by looking: it works on every file system, and on folders that are
//! swapped whole, as orchestrators do it.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How often to look.
const EVERY: Duration = Duration::from_secs(1);

/// What the files of a folder look like from outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Look(Vec<(PathBuf, Option<SystemTime>, u64)>);

/// Resolves once a rule file is new, gone or different from what it was at `loaded`, and has stayed the same for
/// one look: an editor may still be writing.
pub(super) async fn changed(folder: &Path, loaded: &Look) {
    let mut tick = tokio::time::interval(EVERY);
    let mut last = None;
    loop {
        tick.tick().await;
        let now = look(folder);
        if now != *loaded && last.as_ref() == Some(&now) {
            return;
        }
        last = Some(now);
    }
}

/// Looks at the files of a folder. To be taken before they are read: what changes meanwhile is then seen.
pub(super) fn look(folder: &Path) -> Look {
    let mut files = Vec::new();
    // A folder that cannot be read looks empty; the load that follows says why.
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "toml")
            && let Ok(data) = std::fs::metadata(&path)
        {
            files.push((path, data.modified().ok(), data.len()));
        }
    }
    files.sort();
    Look(files)
}
