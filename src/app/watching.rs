//! Notices that rule files have changed, by looking: it works on every file system, and on folders that are
//! swapped whole, as orchestrators do it.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How often to look.
const EVERY: Duration = Duration::from_secs(1);

/// What a file looks like from outside.
type Look = (PathBuf, Option<SystemTime>, u64);

/// Resolves once a rule file is new, gone or different, and has stayed the same for one look: an editor may
/// still be writing.
pub(super) async fn changed(folder: &Path) {
    let first = look(folder).await;
    let mut tick = tokio::time::interval(EVERY);
    let mut last = first.clone();
    loop {
        tick.tick().await;
        let now = look(folder).await;
        if now != first && now == last {
            return;
        }
        last = now;
    }
}

async fn look(folder: &Path) -> Vec<Look> {
    let mut files = Vec::new();
    // A folder that cannot be read looks empty; the load that follows says why.
    let Ok(mut entries) = tokio::fs::read_dir(folder).await else { return files };
    while let Ok(Some(entry)) = entries.next_entry().await {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "toml")
            && let Ok(data) = tokio::fs::metadata(&path).await
        {
            files.push((path, data.modified().ok(), data.len()));
        }
    }
    files.sort();
    files
}
