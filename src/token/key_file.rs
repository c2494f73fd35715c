//! Private files and folders: readable by their owner only, and written durably.

use std::io;
use std::path::Path;

/// Creates a folder with mode 0700.
pub(crate) fn create_private_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // A folder that existed before may have a wider mode.
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
}

/// Writes a file with mode 0600 atomically and durably.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let temporary = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// Syncs a folder, so that a power failure cannot bring a removed key back.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    std::fs::File::open(folder)?.sync_all()
}
